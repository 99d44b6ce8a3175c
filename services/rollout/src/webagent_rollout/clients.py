"""The ports of the agent loop over gRPC.

Every call has a time bound from the config and is repeated as `patience` says. An episode stays with one replica of env
and one of inference, picked by hashing its session id; after a refusal it turns to another replica, which a new session
or a stateless call may do freely. Once the session exists, its calls go to the address that env named and nowhere else.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import grpc.aio
import structlog
from google.protobuf.duration_pb2 import Duration
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.evaluator.v1.evaluator_pb2 import EvaluateRequest, Verdict
from webagent.evaluator.v1.evaluator_pb2_grpc import EvaluatorServiceStub
from webagent.inference.v1 import inference_pb2
from webagent.inference.v1.inference_pb2_grpc import InferenceServiceStub
from webagent.trajectory.v1.trajectory_pb2 import EpisodeSpec
from webagent_runtime.client import open_channel, pick_address
from webagent_runtime.errors import ServiceError, from_rpc

from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.patience import persist
from webagent_rollout.ports import Session

if TYPE_CHECKING:
    from webagent.env.v1.env_pb2_grpc import EnvironmentServiceAsyncStub
    from webagent.inference.v1.inference_pb2_grpc import InferenceServiceAsyncStub

log = structlog.get_logger()

Q = TypeVar("Q")
A = TypeVar("A")


async def ask(method: grpc.aio.UnaryUnaryMultiCallable[Q, A], request: Q, seconds: float) -> A:
    """Makes one call and turns its error into the ServiceError that the other side raised."""
    try:
        return await method(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from error


class Replica:
    """The replica of a service that one episode talks to."""

    def __init__(self, config: TargetConfig, key: str) -> None:
        self.address = ""
        self._config = config
        self._key = key
        self._refusals = 0
        self._channel: grpc.aio.Channel | None = None

    async def channel(self) -> grpc.aio.Channel:
        """Returns a channel to the replica, picking one first if need be."""
        if self._channel is None:
            self.address = await pick_address(self._config.target, self._key, refusals=self._refusals)
            self._channel = open_channel(self.address, self._config.client)
        return self._channel

    async def pin(self, address: str) -> None:
        """Turns to the replica at this very address."""
        if address and address != self.address:
            await self.close()
            self.address = address
            self._channel = open_channel(address, self._config.client)

    async def leave(self, error: ServiceError) -> None:
        """Gives this replica up; the next call picks again, from the addresses known then."""
        log.info("replica refused", target=self._config.target, address=self.address, reason=error.reason)
        self._refusals += 1
        await self.close()

    async def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()


class EnvSession:
    """A browser session in the env service, whose lease is renewed for as long as it is held here."""

    def __init__(self, config: TargetConfig, limits: LimitsConfig, session_id: str) -> None:
        self.session_id = session_id
        self._limits = limits
        self._replica = Replica(config, session_id)
        self._renewal: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The replica that holds the session."""
        return self._replica.address

    async def create(self, spec: EpisodeSpec) -> env_pb2.CreateSessionResponse:
        """Opens the session on the episode's task."""
        request = env_pb2.CreateSessionRequest(
            session_id=self.session_id, task=spec.task, seed=spec.seed, options=self._options(spec)
        )

        async def once() -> env_pb2.CreateSessionResponse:
            stub = await self._stub()
            return await ask(stub.CreateSession, request, self._limits.create_seconds)

        created = await persist(once, outage_seconds=self._limits.outage_seconds, on_refusal=self._replica.leave)
        await self._replica.pin(created.session.address)
        self._renewal = asyncio.create_task(self._renew(), name=f"renew {self.session_id}")
        return created

    async def step(self, index: int, action_text: str) -> env_pb2.StepResponse:
        """Takes one action."""
        request = env_pb2.StepRequest(session_id=self.session_id, step_index=index, action_text=action_text)

        async def once() -> env_pb2.StepResponse:
            stub = await self._stub()
            return await ask(stub.Step, request, self._limits.step_seconds)

        return await persist(once, outage_seconds=self._limits.outage_seconds)

    async def close(self) -> None:
        """Closes the session; what cannot be reached now, env's lease closes."""
        if self._renewal is not None:
            self._renewal.cancel()
        try:
            stub = await self._stub()
            request = env_pb2.CloseSessionRequest(session_id=self.session_id)
            await ask(stub.CloseSession, request, self._limits.close_seconds)
        except ServiceError as error:
            log.warning("session left to its lease", session=self.session_id, reason=error.reason, detail=str(error))
        finally:
            await self._replica.close()

    def _options(self, spec: EpisodeSpec) -> env_pb2.SessionOptions:
        observations = [env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML]
        if spec.agent.screenshots:
            observations.append(env_pb2.OBSERVATION_KIND_SCREENSHOT)
        return env_pb2.SessionOptions(
            observations=observations,
            lease=_duration(self._limits.lease_seconds),
            max_observation_bytes=spec.agent.max_observation_bytes,
            omit_attributes=spec.agent.omit_attributes,
        )

    async def _stub(self) -> EnvironmentServiceAsyncStub:
        return env_pb2_grpc.EnvironmentServiceStub(await self._replica.channel())

    async def _renew(self) -> None:
        """Keeps the lease while the policy thinks; a session that is lost shows at its next step."""
        request = env_pb2.RenewLeaseRequest(session_id=self.session_id)
        while True:
            await asyncio.sleep(self._limits.lease_seconds / 3)
            try:
                stub = await self._stub()
                await ask(stub.RenewLease, request, self._limits.lease_seconds / 3)
            except ServiceError as error:
                log.info("lease not renewed", session=self.session_id, reason=error.reason)


class InferenceClient:
    """Render, Generate and Score for one episode; `training` says whether its replies are to be trained on."""

    def __init__(self, config: TargetConfig, limits: LimitsConfig, session_key: str, *, training: bool) -> None:
        self._purpose = inference_pb2.PURPOSE_TRAINING if training else inference_pb2.PURPOSE_EVALUATION
        self._limits = limits
        self._key = session_key
        self._replica = Replica(config, session_key)
        self._attempts = count()

    async def render(self, request: inference_pb2.RenderRequest) -> inference_pb2.RenderResponse:
        """Turns messages into token ids."""

        async def once() -> inference_pb2.RenderResponse:
            stub = await self._stub()
            return await ask(stub.Render, request, self._limits.generate_seconds)

        return await persist(once, outage_seconds=self._limits.outage_seconds, on_refusal=self._replica.leave)

    async def generate(self, request: inference_pb2.GenerateRequest) -> inference_pb2.GenerateResponse:
        """Samples one reply."""
        request.session_key = self._key
        request.purpose = self._purpose

        async def once() -> inference_pb2.GenerateResponse:
            request.request_id = f"{self._key}/{next(self._attempts)}"
            stub = await self._stub()
            return await ask(stub.Generate, request, self._limits.generate_seconds)

        return await persist(once, outage_seconds=self._limits.outage_seconds, on_refusal=self._replica.leave)

    async def score(self, request: inference_pb2.ScoreRequest) -> inference_pb2.ScoreResponse:
        """Log-probabilities of given tokens."""

        async def once() -> inference_pb2.ScoreResponse:
            stub = await self._stub()
            return await ask(stub.Score, request, self._limits.generate_seconds)

        return await persist(once, outage_seconds=self._limits.outage_seconds, on_refusal=self._replica.leave)

    async def close(self) -> None:
        """Closes the channel."""
        await self._replica.close()

    async def _stub(self) -> InferenceServiceAsyncStub:
        return InferenceServiceStub(await self._replica.channel())


class EvaluatorClient:
    """Verdicts; one client for all episodes."""

    def __init__(self, config: TargetConfig, limits: LimitsConfig) -> None:
        self._limits = limits
        self._channel = open_channel(config.target, config.client)
        self._stub = EvaluatorServiceStub(self._channel)

    async def evaluate(self, session: Session, answer: str | None) -> Verdict:
        """Judges the episode that ended in this session."""
        request = EvaluateRequest(session_address=session.address, session_id=session.session_id, answer=answer)

        async def once() -> Verdict:
            return (await ask(self._stub.Evaluate, request, self._limits.evaluate_seconds)).verdict

        return await persist(once, outage_seconds=self._limits.outage_seconds)

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
