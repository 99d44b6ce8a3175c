"""The env service from Python, asynchronous and not.

    async with EnvClient("127.0.0.1:50051") as env:
        async with await env.open("miniwob/click-button", seed=3) as session:
            print(session.instruction, session.observation.text)
            step = await session.act('do(action="Click", element="0")')
            print(step.terminated, await session.judge())

`SyncEnvClient` and its sessions have the same methods without `await`. Messages are those of the contract
(`webagent.env.v1`); refused calls raise `webagent_runtime.errors.ServiceError` with a stable reason. Where the target
names several replicas, a session goes to the one that owns its id.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import grpc.aio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2, probe_pb2_grpc
from webagent_runtime.client import open_channel, pick_address
from webagent_runtime.config import ClientConfig
from webagent_runtime.errors import ServiceError, from_rpc

T = TypeVar("T")

_MOST_ATTEMPTS = 20
_LONGEST_PAUSE = 10.0


def _is_full(error: BaseException) -> bool:
    return isinstance(error, ServiceError) and error.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def _as_advised(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    advised = error.retry_after if isinstance(error, ServiceError) else None
    return min(advised or 1.0, _LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the page says of its task: whether it is done, its reward, and whether that is a success."""

    done: bool
    reward: float
    success: bool


class EnvClient:
    """A connection to the service. `timeout` bounds each call, in seconds."""

    def __init__(self, target: str, *, config: ClientConfig | None = None, timeout: float = 60.0) -> None:
        self._target = target
        self._config = config or ClientConfig()
        self._timeout = timeout
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; sessions that are still open end with their leases."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def tasks(self, suite: str = "") -> list[env_pb2.TaskInfo]:
        """The tasks of a suite, or of all."""
        stub = self._stub(self._target)
        answer = await self._call(stub.ListTasks(env_pb2.ListTasksRequest(suite=suite), timeout=self._timeout))
        return list(answer.tasks)

    async def capabilities(self) -> env_pb2.GetCapabilitiesResponse:
        """What the service can do and how full it is."""
        stub = self._stub(self._target)
        asked = stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=self._timeout)
        answer: env_pb2.GetCapabilitiesResponse = await self._call(asked)
        return answer

    async def open(
        self, task: str, *, seed: int = 0, session_id: str = "", options: env_pb2.SessionOptions | None = None
    ) -> Session:
        """Opens a session on a task named "suite/task"; waits, within bounds, where the service is full."""
        suite, _, task_id = task.partition("/")
        session_id = session_id or uuid.uuid4().hex
        request = env_pb2.CreateSessionRequest(
            session_id=session_id,
            task=env_pb2.TaskRef(suite=suite, task_id=task_id),
            seed=seed,
            options=options,
        )
        address = await pick_address(self._target, session_id)

        async def once() -> Session:
            opened = await self._call(self._stub(address).CreateSession(request, timeout=self._timeout))
            return Session(self, opened, address)

        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_full), stop=stop_after_attempt(_MOST_ATTEMPTS), wait=_as_advised, reraise=True
        )
        session: Session = await retrying(once)
        return session

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._config)
        return self._channels[address]

    def _stub(self, address: str) -> env_pb2_grpc.EnvironmentServiceAsyncStub:
        return env_pb2_grpc.EnvironmentServiceStub(self._channel(address))

    def _probes(self, address: str) -> probe_pb2_grpc.ProbeServiceAsyncStub:
        return probe_pb2_grpc.ProbeServiceStub(self._channel(address))

    async def _call(self, call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


class Session:
    """An open session: the newest observation, and what can be done next."""

    def __init__(self, client: EnvClient, opened: env_pb2.CreateSessionResponse, address: str) -> None:
        self.info = opened.session
        self.instruction = opened.instruction
        self.observation = opened.observation
        self.over = opened.session.state != env_pb2.SESSION_STATE_ACTIVE
        self.next_step = opened.session.next_step_index
        self._client = client
        self._stub = client._stub(address)
        self._probes = client._probes(address)
        self._timeout = client._timeout
        self._rule: probe_pb2.TaskRule | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def act(self, action: str | env_pb2.Action) -> env_pb2.StepResponse:
        """Takes one action, in the text form or typed."""
        request = env_pb2.StepRequest(session_id=self.info.session_id, step_index=self.next_step)
        if isinstance(action, str):
            request.action_text = action
        else:
            request.action.CopyFrom(action)
        answer: env_pb2.StepResponse = await self._client._call(self._stub.Step(request, timeout=self._timeout))
        self.next_step += 1
        self.observation = answer.observation
        self.over = answer.terminated or answer.truncated
        return answer

    async def observe(self, *kinds: env_pb2.ObservationKind.ValueType) -> env_pb2.Observation:
        """Reads the page as it is now."""
        request = env_pb2.ObserveRequest(session_id=self.info.session_id, observations=kinds)
        answer: env_pb2.ObserveResponse = await self._client._call(self._stub.Observe(request, timeout=self._timeout))
        self.observation = answer.observation
        return answer.observation

    async def probe(self, javascript: str, url: str = "") -> Any:
        """A value of the page, or of another address; needs the scope of evaluators."""
        request = probe_pb2.ProbeRequest(session_id=self.info.session_id, javascript=javascript, url=url)
        answer = await self._client._call(self._probes.Probe(request, timeout=self._timeout))
        return json.loads(answer.value_json)

    async def rule(self) -> probe_pb2.TaskRule:
        """How the task is judged; needs the scope of evaluators."""
        if self._rule is None:
            request = probe_pb2.GetTaskRuleRequest(session_id=self.info.session_id)
            answer = await self._client._call(self._probes.GetTaskRule(request, timeout=self._timeout))
            self._rule = answer.rule
        return self._rule

    async def judge(self) -> Judgement | None:
        """What the task's page says of itself; None for tasks that are judged otherwise."""
        rule = await self.rule()
        if rule.WhichOneof("dialect") != "native":
            return None
        value = await self.probe(rule.native.reward_javascript)
        done, reward = bool(value["done"]), float(value["reward"])
        return Judgement(done, reward, done and reward >= rule.native.success_threshold)

    async def close(self) -> None:
        """Closes the session; doing it again is fine."""
        request = env_pb2.CloseSessionRequest(session_id=self.info.session_id)
        await self._client._call(self._stub.CloseSession(request, timeout=self._timeout))


class _Loop:
    """An event loop in a thread of its own, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webagent-env-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncEnvClient:
    """`EnvClient` without `await`."""

    def __init__(self, target: str, *, config: ClientConfig | None = None, timeout: float = 60.0) -> None:
        self._loop = _Loop()
        self._client = EnvClient(target, config=config, timeout=timeout)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; doing it again is fine."""
        if not self._closed:
            self._closed = True
            self._loop.run(self._client.close())
            self._loop.stop()

    def tasks(self, suite: str = "") -> list[env_pb2.TaskInfo]:
        """The tasks of a suite, or of all."""
        return self._loop.run(self._client.tasks(suite))

    def capabilities(self) -> env_pb2.GetCapabilitiesResponse:
        """What the service can do and how full it is."""
        return self._loop.run(self._client.capabilities())

    def open(
        self, task: str, *, seed: int = 0, session_id: str = "", options: env_pb2.SessionOptions | None = None
    ) -> SyncSession:
        """Opens a session on a task named "suite/task"."""
        opening = self._client.open(task, seed=seed, session_id=session_id, options=options)
        return SyncSession(self._loop, self._loop.run(opening))


class SyncSession:
    """`Session` without `await`."""

    def __init__(self, loop: _Loop, session: Session) -> None:
        self._loop = loop
        self._session = session
        self.info = session.info
        self.instruction = session.instruction

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def observation(self) -> env_pb2.Observation:
        """The newest observation."""
        return self._session.observation

    @property
    def over(self) -> bool:
        """Whether the episode ended."""
        return self._session.over

    def act(self, action: str | env_pb2.Action) -> env_pb2.StepResponse:
        """Takes one action, in the text form or typed."""
        return self._loop.run(self._session.act(action))

    def observe(self, *kinds: env_pb2.ObservationKind.ValueType) -> env_pb2.Observation:
        """Reads the page as it is now."""
        return self._loop.run(self._session.observe(*kinds))

    def rule(self) -> probe_pb2.TaskRule:
        """How the task is judged; needs the scope of evaluators."""
        return self._loop.run(self._session.rule())

    def judge(self) -> Judgement | None:
        """What the task's page says of itself; None for tasks that are judged otherwise."""
        return self._loop.run(self._session.judge())

    def close(self) -> None:
        """Closes the session."""
        self._loop.run(self._session.close())
