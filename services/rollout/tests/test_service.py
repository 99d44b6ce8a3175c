"""The rollout service as a process: RunEpisode, starting and stopping, dying."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2 as tp
from webagent_rollout.config import RolloutConfig
from webagent_rollout.patience import persist
from webagent_rollout.testing import Process, ScriptedPolicy, episode, live_sessions, request
from webagent_runtime.client import open_channel
from webagent_runtime.config import ConfigError, QueueConfig, validate
from webagent_runtime.errors import from_rpc
from webagent_runtime.queue import Queue
from webagent_runtime.testing import nats_server

RIGHT = 'do(action="Click", element="0")'
BOUND = 60.0
SERVICE = "webagent.rollout.v1.RolloutService"
Start = Callable[..., Process]


@pytest.fixture
def start(env: Process, evaluator: Process, policy: ScriptedPolicy, tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def make(*options: str) -> Process:
        process = Process(
            "webagent_rollout",
            SERVICE,
            f"env.target={env.address}",
            f"evaluator.target={evaluator.address}",
            f"inference.target={policy.address}",
            f"payloads.uri={tmp_path.as_uri()}",
            "server.drain_seconds=10",
            *options,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.stop()


def call(stub: rollout_pb2_grpc.RolloutServiceStub, spec: tp.EpisodeSpec):
    return stub.RunEpisode(rollout_pb2.RunEpisodeRequest(episode=spec), timeout=BOUND)


async def call_when_free(
    stub: rollout_pb2_grpc.RolloutServiceStub, spec: tp.EpisodeSpec
) -> AsyncIterator[rollout_pb2.RunEpisodeResponse]:
    async def play() -> list[rollout_pb2.RunEpisodeResponse]:
        try:
            return [event async for event in call(stub, spec)]
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    for event in await persist(play, outage_seconds=0):
        yield event


async def refusal(stub: rollout_pb2_grpc.RolloutServiceStub, spec: tp.EpisodeSpec) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call(stub, spec):
            pass
    error = from_rpc(caught.value)
    return error.code, error.reason


async def test_run_episode_streams_the_play_and_refuses_what_it_cannot_play(
    start: Start, policy: ScriptedPolicy, env: Process
) -> None:
    process = start("concurrency=1")
    await asyncio.to_thread(process.start)
    policy.script = lambda prompt: RIGHT
    async with open_channel(process.address) as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        events = [event async for event in call(stub, episode("streamed"))]
        assert [event.WhichOneof("event") for event in events] == ["started", "turn", "finished"]
        trajectory = events[-1].finished.trajectory
        assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 1.0)
        assert list(trajectory.turns) == [events[1].turn.turn]

        assert await refusal(stub, episode("a", "nosuch")) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
        bad = (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_PROMPT")
        assert await refusal(stub, episode("a", prompt="nosuch")) == bad
        bad = (grpc.StatusCode.INVALID_ARGUMENT, "NO_EXPERT")
        assert await refusal(stub, episode("a", "nosuch", expert=True)) == bad
        assert await refusal(stub, episode("a b")) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")

        asked = asyncio.Event()

        async def wait_for_ever() -> None:
            asked.set()
            await asyncio.Event().wait()

        policy.before_reply = wait_for_ever
        running = call(stub, episode("watched"))
        await running.read()
        await asked.wait()
        full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "AT_CAPACITY")
        assert await refusal(stub, episode("too-many")) == full
        capabilities = await stub.GetCapabilities(rollout_pb2.GetCapabilitiesRequest(), timeout=5)
        assert (capabilities.capacity, capabilities.episodes) == (1, 1)
        assert "compact" in capabilities.prompts
        assert "click-test" in {task.task_id for task in capabilities.experts}

        running.cancel()
        policy.before_reply = None
        again = [event async for event in call_when_free(stub, episode("next"))]
        assert again[-1].finished.trajectory.reward == 1.0
        assert await live_sessions(env.address, "watched") == []


async def test_a_request_whose_service_was_killed_is_played_anew_by_another(
    start: Start, policy: ScriptedPolicy
) -> None:
    with nats_server() as nats:
        queue = await Queue.connect(QueueConfig(url=nats.url, ack_wait_seconds=2), name="test")
        await queue.ensure()
        await queue.ensure_run("run")
        options = (f"queue.url={nats.url}", "queue.ack_wait_seconds=2")
        first = start(*options)
        await asyncio.to_thread(first.start)
        asked = asyncio.Event()

        async def kill() -> None:
            asked.set()
            await asyncio.Event().wait()

        policy.before_reply = kill
        await queue.publish_request(request(episode("killed"), seconds=BOUND))
        async with asyncio.timeout(BOUND):
            await asked.wait()
        await asyncio.to_thread(first.kill)
        policy.before_reply = None
        policy.script = lambda prompt: RIGHT
        second = start(*options)
        await asyncio.to_thread(second.start)
        outcomes = queue.trajectories("run")
        delivery = await outcomes.next(BOUND)
        assert delivery is not None
        await delivery.ack()
        assert (delivery.message.delivery, delivery.message.reward) == (2, 1.0)
        await asyncio.to_thread(second.stop)
        assert await queue.requests().next(3) is None
        assert await outcomes.next(0.2) is None
        await queue.close()


async def test_a_service_that_is_told_to_stop_closes_its_sessions(
    start: Start, policy: ScriptedPolicy, env: Process
) -> None:
    process = start("server.drain_seconds=1")
    await asyncio.to_thread(process.start)
    policy.before_reply = asyncio.Event().wait
    async with open_channel(process.address) as channel:
        running = call(rollout_pb2_grpc.RolloutServiceStub(channel), episode("stopped"))
        await running.read()
        assert len(await live_sessions(env.address, "stopped")) == 1
        await asyncio.to_thread(process.stop)
    assert await live_sessions(env.address, "stopped") == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["payloads"]),
        ({"payloads": {"uri": "file:///tmp/none"}, "concurency": 3}, ["concurency", "concurrency"]),
        ({"payloads": {"uri": "file:///tmp/none"}, "env": {"target": "nowhere"}}, ["env.target"]),
    ],
)
def test_a_wrong_key_or_value_is_named(values: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(RolloutConfig, values, source="test")
    assert all(word in str(caught.value) for word in words)


def test_a_queue_that_cannot_be_reached_is_said_in_one_line() -> None:
    options = (
        "queue.url=nats://127.0.0.1:1",
        "queue.connect_timeout=0.5",
        "server.port=0",
        "telemetry.log_level=error",
    )
    result = _run("payloads.uri=file:///tmp/none", *options)
    assert result.returncode == 2, result
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "127.0.0.1:1" in result.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = _run("payloads.uri=file:///tmp/none", f"server.port={port}")
    assert result.returncode == 2
    assert str(port) in result.stderr


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    arguments = [part for option in options for part in ("--set", option)]
    command = [sys.executable, "-m", "webagent_rollout", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
