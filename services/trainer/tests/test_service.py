"""The whole trainer over gRPC and a real queue: real DeepSpeed, a tiny model, episodes sampled from its versions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from webagent.trainer.v1 import trainer_pb2, trainer_pb2_grpc
from webagent_runtime import delimited
from webagent_runtime.errors import from_rpc
from webagent_runtime.testing import NatsServer, free_port
from webagent_trainer.testing import GOOD, make_demonstration, playing, prompt_of

SECONDS = 90.0
OVER = {trainer_pb2.RUN_STATE_SUCCEEDED, trainer_pb2.RUN_STATE_FAILED, trainer_pb2.RUN_STATE_STOPPED}


@asynccontextmanager
async def trainer(nats: NatsServer, directory: Path) -> AsyncIterator[trainer_pb2_grpc.TrainerServiceAsyncStub]:
    """A trainer process and a stub of it; the process has ended when the block is left."""
    port = free_port()
    config = directory / "trainer.yaml"
    config.write_text(yaml.safe_dump({"server": {"port": port}, "queue": {"url": nats.url}}))
    with (directory / "trainer.log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "webagent_trainer", "--config", str(config), stdout=output, stderr=output
        )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            async with asyncio.timeout(SECONDS):
                await channel.channel_ready()
            yield trainer_pb2_grpc.TrainerServiceStub(channel)
    finally:
        if process.returncode is None:
            process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) in {0, -9}


def run_config(directory: Path, model: Path, **changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "run_directory": str(directory),
        "model": str(model),
        "deepspeed": {"threads": 1},
        "checkpoints": {"every": 2},
        "rl": {
            "suite": "toy",
            "tasks": ["a", "b"],
            "seeds": {"first": 100, "count": 100},
            "sampling": {"max_tokens": 3},
            "iterations": 3,
            "groups": 4,
            "group_size": 4,
            "epochs": 2,
            "minibatch_rows": 8,
            "deadline_seconds": 60,
            "optimizer": {"learning_rate": 1e-2},
        },
    }
    config["rl"] |= changes.pop("rl", {})
    return config | changes


async def start(stub: trainer_pb2_grpc.TrainerServiceAsyncStub, config: dict[str, Any]) -> str:
    run_id = Path(config["run_directory"]).name
    request = trainer_pb2.StartRunRequest(run_id=run_id, config_yaml=yaml.safe_dump(config))
    await stub.StartRun(request, timeout=30)
    return run_id


async def watch_until(
    stub: trainer_pb2_grpc.TrainerServiceAsyncStub, run_id: str, *states: int
) -> trainer_pb2.RunStatus:
    async for event in stub.WatchRun(trainer_pb2.WatchRunRequest(run_id=run_id), timeout=SECONDS):
        if event.status.state in {*states, *OVER}:
            return event.status
    raise AssertionError("the stream ended early")


def demonstrations(path: Path) -> Path:
    for seed in range(12):
        for task in "ab":
            delimited.append(path, make_demonstration(prompt_of(task, seed), [GOOD, GOOD, 9 + seed % 5]))
    return path


async def test_a_run_clones_pauses_reinforces_and_adds_up(nats: NatsServer, tiny_model: Path, tmp_path: Path) -> None:
    config = run_config(
        tmp_path / "whole",
        tiny_model,
        bc={"demonstrations": str(demonstrations(tmp_path / "demos")), "epochs": 2, "batch_rows": 8},
        pause_between_phases=True,
    )
    async with playing(nats.url, tiny_model) as player, trainer(nats, tmp_path) as stub:
        run_id = await start(stub, config)
        paused = await watch_until(stub, run_id, trainer_pb2.RUN_STATE_PAUSED)
        assert paused.state == trainer_pb2.RUN_STATE_PAUSED, paused
        assert (paused.phase, paused.policy_version) == (trainer_pb2.RUN_PHASE_BC, player.version)
        await stub.ResumeRun(trainer_pb2.ResumeRunRequest(run_id=run_id), timeout=10)
        over = await watch_until(stub, run_id)
        assert over.state == trainer_pb2.RUN_STATE_SUCCEEDED, over
        versions = (
            await stub.ListPolicyVersions(trainer_pb2.ListPolicyVersionsRequest(run_id=run_id), timeout=10)
        ).versions
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.PauseRun(trainer_pb2.PauseRunRequest(run_id=run_id), timeout=10)
        assert from_rpc(raised.value).reason == "RUN_OVER"

    ledger = over.ledger
    assert ledger.dispatched == player.played == 48
    assert ledger.scored == 48 == ledger.trained + ledger.no_variance
    assert versions[-1].version == over.policy_version == player.version
    assert len({version.version for version in versions}) == len(versions) >= 2
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    ratios = [line["ratio_mean"] for line in lines if line["phase"] == "rl" and "ratio_mean" in line]
    assert ratios
    assert all(abs(ratio - 1) < 0.02 for ratio in ratios)
