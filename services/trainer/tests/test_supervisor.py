"""How a run ends that was given no time, met something nobody foresaw, or lost its queue; what stays on the queue."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.config import QueueConfig, validate
from webagent_runtime.queue import Queue
from webagent_runtime.testing import NatsServer, nats_server
from webagent_trainer.board import State
from webagent_trainer.checkpoint import Checkpoints
from webagent_trainer.config import DeepSpeedConfig, RunConfig
from webagent_trainer.crew import Crew, join
from webagent_trainer.supervisor import Supervisor, crash_of

SECONDS = 60.0


class Held(Crew):
    """Begins once it is released, and then as told."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.release = threading.Event()
        self._error = error

    def begin(self, config: DeepSpeedConfig) -> None:
        self.release.wait(SECONDS)
        if self._error is not None:
            raise self._error
        super().begin(config)


class Severed(Crew):
    """Loses the queue as its run ends."""

    def __init__(self, nats: NatsServer) -> None:
        super().__init__()
        self._nats = nats

    def close(self) -> None:
        self._nats.kill()
        super().close()


def run_config(directory: Path, model: Path) -> RunConfig:
    rl: dict[str, Any] = {"suite": "toy", "tasks": ["a"], "seeds": {"first": 0, "count": 99}}
    return validate(RunConfig, {"run_directory": directory, "model": model, "rl": rl}, source="test")


async def ask(queue: Queue, run_id: str) -> None:
    request = trajectory_pb2.RolloutRequest(run_id=run_id)
    request.episode.episode_id = f"{run_id}.0"
    await queue.publish_request(request)


async def asked(queue: Queue, run_id: str) -> bool:
    """Whether the run's request is on the queue still; takes whatever is."""
    found = False
    requests = queue.requests()
    while (delivery := await requests.next(0.5)) is not None:
        found |= delivery.message.run_id == run_id
        await delivery.ack()
    return found


async def test_a_run_that_had_no_time_to_end_finds_its_requests_when_it_is_resumed(
    nats: NatsServer, queue: Queue, tiny_model: Path, tmp_path: Path
) -> None:
    join(60)
    crew = Held()
    supervisor = Supervisor(QueueConfig(url=nats.url), crew)
    run = await supervisor.start("hurried", run_config(tmp_path / "hurried", tiny_model))
    await ask(queue, "hurried")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(supervisor.stop(), 0.1)
    # Nobody waits for it, and it ends in order all the same.
    crew.release.set()
    await asyncio.wait_for(supervisor.stop(), SECONDS)
    assert run.board.status.state is State.STOPPED
    assert await asked(queue, "hurried")


async def test_a_run_that_failed_finds_its_requests_when_it_is_resumed(
    nats: NatsServer, queue: Queue, tiny_model: Path, tmp_path: Path
) -> None:
    join(60)
    crew = Held(RuntimeError("power cut"))
    supervisor = Supervisor(QueueConfig(url=nats.url), crew)
    run = await supervisor.start("crashed", run_config(tmp_path / "crashed", tiny_model))
    await ask(queue, "crashed")
    crew.release.set()
    await asyncio.wait_for(asyncio.shield(run.task), SECONDS)
    assert run.board.status.state is State.FAILED
    assert await asked(queue, "crashed")
    await supervisor.stop()


async def test_a_run_that_failed_is_resumed_as_one_that_stopped_is(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    join(60)
    crew = Held(RuntimeError("for the moment"))
    crew.release.set()
    supervisor = Supervisor(QueueConfig(url=nats.url), crew)
    config = run_config(tmp_path / "again", tiny_model)
    first = await supervisor.start("again", config)
    await asyncio.wait({first.task}, timeout=SECONDS)
    assert first.board.status.state is State.FAILED
    second = await supervisor.start("again", config)
    assert second is not first
    await asyncio.wait_for(supervisor.stop(), SECONDS)
    assert second.board.status.state is State.FAILED


async def test_a_run_whose_queue_is_gone_at_its_end_has_succeeded(tiny_model: Path, tmp_path: Path) -> None:
    join(60)
    config = run_config(tmp_path / "severed", tiny_model)
    shared: dict[str, Any] = {"lineage": [[0]], "ends": {}, "steps": 0, "prompts": []}
    state = {"phase": "done", "progress": {}, "shared": shared}
    Checkpoints(config.run_directory / "checkpoints", keep=1).save(state, None)
    with nats_server() as nats:
        supervisor = Supervisor(QueueConfig(url=nats.url, publish_timeout=0.5), Severed(nats))
        run = await supervisor.start("severed", config)
        await asyncio.wait_for(supervisor.stop(), SECONDS)
    assert run.board.status.state is State.SUCCEEDED
    assert run.task.exception() is None


def test_a_full_disk_is_named_whatever_the_error_says(tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, OSError)) as told:
        torch.save(torch.zeros(1 << 20), "/dev/full")
    reason, detail = crash_of(told.value, tmp_path, free_bytes=3 << 20)
    assert reason == "DISK_FULL"
    assert f"{tmp_path} has 3 MiB left: make room there and resume" in detail
    assert crash_of(told.value, tmp_path, free_bytes=1 << 40)[0] == "CRASHED"
