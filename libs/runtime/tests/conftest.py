"""A small servicer on a real server, and a private NATS for each test module."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.config import QueueConfig, ServerConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue
from webagent_runtime.server import Server
from webagent_runtime.testing import NatsServer, nats_server

ENV = "webagent.env.v1.EnvironmentService"
ROLLOUT = "webagent.rollout.v1.RolloutService"


class Env(env_pb2_grpc.EnvironmentServiceServicer):
    """Each RPC answers in one way of its own."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.unavailable = 0
        self.calls = 0
        self.metadata: dict[str, Any] = {}

    async def ListTasks(self, request, context):
        raise ServiceError(grpc.StatusCode.NOT_FOUND, "SUITE_NOT_FOUND", f"no suite {request.suite!r}")

    async def CreateSession(self, request, context):
        raise ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "AT_CAPACITY", "all 4 sessions are taken", retry_after=1.5
        )

    async def Step(self, request, context):
        raise ValueError("a bug")

    async def Observe(self, request, context):
        text = "x" * int(request.session_id)
        return env_pb2.ObserveResponse(observation=env_pb2.Observation(text=text))

    async def CloseSession(self, request, context):
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return env_pb2.CloseSessionResponse(existed=True)

    async def GetCapabilities(self, request, context):
        self.calls += 1
        self.metadata = dict(context.invocation_metadata())
        if self.unavailable:
            self.unavailable -= 1
            raise ServiceError(grpc.StatusCode.UNAVAILABLE, "DRAINING", "going away", retry_after=0.1)
        return env_pb2.GetCapabilitiesResponse(capacity=4)


class Rollout(rollout_pb2_grpc.RolloutServiceServicer):
    """Streams two events, then fails; an episode named "endless" streams for ever and leaves the tasks it ran in."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any] | None] = []
        self.left = asyncio.Event()

    async def RunEpisode(self, request, context):
        if request.episode.episode_id == "endless":
            self.tasks.append(asyncio.current_task())
            try:
                while True:
                    yield rollout_pb2.RunEpisodeResponse()
            finally:
                self.tasks.append(asyncio.current_task())
                self.left.set()
        for index in range(2):
            yield rollout_pb2.RunEpisodeResponse(turn=rollout_pb2.TurnTaken(turn_index=index))
        raise ServiceError(grpc.StatusCode.UNAVAILABLE, "DRAINING", "going away", retry_after=2.0)


@pytest.fixture
async def env() -> Env:
    return Env()


@pytest.fixture
async def rollout() -> Rollout:
    return Rollout()


@pytest.fixture
async def serve(env: Env, rollout: Rollout) -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """Starts servers from ServerConfig's fields; they stop with the test."""
    servers: list[Server] = []

    async def start(**fields: Any) -> Server:
        server = Server(ServerConfig(**{"port": 0, **fields}), name="env", version="1.2.3")
        server.add(env_pb2_grpc.add_EnvironmentServiceServicer_to_server, env, service=ENV, scope="env")
        server.add(rollout_pb2_grpc.add_RolloutServiceServicer_to_server, rollout, service=ROLLOUT, scope="rollout")
        await server.start()
        servers.append(server)
        return server

    yield start
    env.release.set()
    for server in servers:
        await server.stop(0)


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    with nats_server() as server:
        yield server


@pytest.fixture
def connect(nats: NatsServer) -> Callable[..., Any]:
    """Opens a provisioned queue: `async with connect(ack_wait_seconds=1) as queue`."""

    @asynccontextmanager
    async def opened(*, ensure: bool = True, **fields: Any) -> AsyncIterator[Queue]:
        queue = await Queue.connect(QueueConfig(**{"url": nats.url, **fields}), name="test")
        try:
            if ensure:
                await queue.ensure()
            yield queue
        finally:
            await queue.close()

    return opened


_RUNS = itertools.count()


@pytest.fixture
def run_id() -> str:
    """A run that no other test uses."""
    return f"run-{next(_RUNS)}"


@pytest.fixture
def request_of(run_id: str) -> Callable[[str], trajectory_pb2.RolloutRequest]:
    def make(episode: str) -> trajectory_pb2.RolloutRequest:
        spec = trajectory_pb2.EpisodeSpec(episode_id=f"{run_id}.{episode}")
        return trajectory_pb2.RolloutRequest(run_id=run_id, episode=spec)

    return make


@pytest.fixture
def trajectory_of(run_id: str) -> Callable[[str], trajectory_pb2.Trajectory]:
    def make(episode: str) -> trajectory_pb2.Trajectory:
        spec = trajectory_pb2.EpisodeSpec(episode_id=f"{run_id}.{episode}")
        return trajectory_pb2.Trajectory(run_id=run_id, episode=spec)

    return make
