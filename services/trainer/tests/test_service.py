"""The whole trainer over gRPC and a real queue: real DeepSpeed, a tiny model, episodes sampled from its versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from webagent.trainer.v1 import trainer_pb2, trainer_pb2_grpc
from webagent_runtime import delimited
from webagent_runtime.errors import from_rpc
from webagent_runtime.testing import NatsServer, free_port
from webagent_trainer.config import TrainerConfig
from webagent_trainer.service import serve_rank
from webagent_trainer.testing import ACK_SECONDS, GOOD, make_demonstration, playing, prompt_of, trainer_process

SECONDS = 90.0
OVER = {trainer_pb2.RUN_STATE_SUCCEEDED, trainer_pb2.RUN_STATE_FAILED, trainer_pb2.RUN_STATE_STOPPED}


def trainer_config(nats: NatsServer, **changes: Any) -> dict[str, Any]:
    return {
        "server": {"port": free_port()},
        "queue": {"url": nats.url, "ack_wait_seconds": ACK_SECONDS},
        **changes,
    }


@asynccontextmanager
async def connected(config: dict[str, Any]) -> AsyncIterator[trainer_pb2_grpc.TrainerServiceAsyncStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{config['server']['port']}") as channel:
        async with asyncio.timeout(SECONDS):
            await channel.channel_ready()
        yield trainer_pb2_grpc.TrainerServiceStub(channel)


@asynccontextmanager
async def trainer(nats: NatsServer) -> AsyncIterator[trainer_pb2_grpc.TrainerServiceAsyncStub]:
    """A trainer in this process."""
    config = trainer_config(nats)
    serving = asyncio.create_task(serve_rank(TrainerConfig.model_validate(config)))
    try:
        async with connected(config) as stub:
            yield stub
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


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
    async with playing(nats.url, tiny_model) as player, trainer(nats) as stub:
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


async def test_too_many_invalid_episodes_end_the_run(nats: NatsServer, tiny_model: Path, tmp_path: Path) -> None:
    config = run_config(tmp_path / "broken", tiny_model, rl={"invalid": {"share": 0.5, "window": 8}})
    async with playing(nats.url, tiny_model) as player, trainer(nats) as stub:
        player.judge = lambda reply: None
        run_id = await start(stub, config)
        over = await watch_until(stub, run_id)
    assert (over.state, over.reason) == (trainer_pb2.RUN_STATE_FAILED, "INVALID_SHARE")
    assert "more than 50%" in over.detail
    assert over.ledger.scored == 0
    assert over.ledger.dispatched == over.ledger.open + over.ledger.invalid


async def test_invalid_and_silent_episodes_do_not_change_what_the_others_teach(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    rl = {"iterations": 2, "deadline_seconds": 4, "grace_seconds": 0.5, "group_size": 6}
    config = run_config(tmp_path / "lossy", tiny_model, rl=rl)
    async with playing(nats.url, tiny_model) as player, trainer(nats) as stub:
        rewards = iter([None, 1.0, 0.0, 1.0] * 100)
        player.judge = lambda reply: next(rewards)
        player.silent_every = 7
        run_id = await start(stub, config)
        over = await watch_until(stub, run_id)
    assert over.state == trainer_pb2.RUN_STATE_SUCCEEDED, over
    ledger = over.ledger
    assert (ledger.dispatched, ledger.open) == (48, 0)
    assert ledger.invalid > 0
    assert ledger.expired > 0
    assert ledger.scored + ledger.invalid + ledger.expired == 48
    assert ledger.trained > 0


async def test_a_trainer_killed_in_the_middle_resumes_and_the_ledger_adds_up(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = run_config(tmp_path / "killed", tiny_model, rl={"iterations": 5})
    async with playing(nats.url, tiny_model) as player:
        rewards = iter([1.0, 0.0] * 1000)
        player.judge = lambda reply: next(rewards)
        service = trainer_config(nats)
        async with trainer_process(service, tmp_path), connected(service) as stub:
            run_id = await start(stub, config)
            async for event in stub.WatchRun(trainer_pb2.WatchRunRequest(run_id=run_id), timeout=SECONDS):
                if event.status.iteration == 3:
                    break
            published = event.status.policy_version
        async with trainer(nats) as stub:
            await start(stub, config)
            over = await watch_until(stub, run_id)
            versions = (
                await stub.ListPolicyVersions(trainer_pb2.ListPolicyVersionsRequest(run_id=run_id), timeout=10)
            ).versions
    assert over.state == trainer_pb2.RUN_STATE_SUCCEEDED, over
    assert over.iteration == 5
    ledger = over.ledger
    assert ledger.open == 0
    assert ledger.dispatched == ledger.scored + ledger.invalid + ledger.expired + ledger.dead
    assert ledger.scored == ledger.trained + ledger.stale + ledger.no_variance + ledger.surplus
    # Iteration 3 came after the checkpoint: its weights are gone, and what was sampled from them is stale.
    assert [version.version for version in versions] == sorted({version.version for version in versions})
    assert over.policy_version == versions[-1].version > published


async def test_with_staleness_allowed_rollout_goes_on_while_the_trainer_learns(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = run_config(tmp_path / "overlapped", tiny_model, rl={"max_staleness": 1, "iterations": 4})
    async with playing(nats.url, tiny_model) as player, trainer(nats) as stub:
        rewards = iter([1.0, 0.0] * 1000)
        player.judge = lambda reply: next(rewards)
        run_id = await start(stub, config)
        over = await watch_until(stub, run_id)
    assert over.state == trainer_pb2.RUN_STATE_SUCCEEDED, over
    assert over.ledger.dispatched == over.ledger.scored == 64
    assert over.ledger.trained + over.ledger.stale + over.ledger.no_variance + over.ledger.surplus == 64
    lines = [json.loads(line) for line in (tmp_path / "overlapped" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["staleness"] <= 1 for line in lines)


async def test_a_paused_run_goes_on_and_a_stopped_one_resumes(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = run_config(tmp_path / "paused", tiny_model, rl={"iterations": 4})
    async with playing(nats.url, tiny_model), trainer(nats) as stub:
        run_id = await start(stub, config)
        await stub.PauseRun(trainer_pb2.PauseRunRequest(run_id=run_id), timeout=10)
        assert (await watch_until(stub, run_id, trainer_pb2.RUN_STATE_PAUSED)).state == trainer_pb2.RUN_STATE_PAUSED
        await stub.StopRun(trainer_pb2.StopRunRequest(run_id=run_id), timeout=10)
        stopped = await watch_until(stub, run_id)
        assert stopped.state == trainer_pb2.RUN_STATE_STOPPED
        await start(stub, config)
        over = await watch_until(stub, run_id)
        assert (over.state, over.iteration) == (trainer_pb2.RUN_STATE_SUCCEEDED, 4), over


async def test_a_version_that_nobody_serves_ends_the_run_and_says_who(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = run_config(tmp_path / "deaf", tiny_model, rl={"serve_seconds": 2})
    async with playing(nats.url, tiny_model) as player, trainer(nats) as stub:
        rewards = iter([1.0, 0.0] * 1000)
        player.judge = lambda reply: next(rewards)
        player.refuses = "CANARY_MISMATCH"
        run_id = await start(stub, config)
        over = await watch_until(stub, run_id)
    assert (over.state, over.reason) == (trainer_pb2.RUN_STATE_FAILED, "NOT_SERVED")
    assert "CANARY_MISMATCH" in over.detail


async def test_requests_that_make_no_sense_get_stable_reasons(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = run_config(tmp_path / "one", tiny_model)
    bad = config | {"rl": config["rl"] | {"sampling": {"top_p": 0.9}}}
    async with playing(nats.url, tiny_model), trainer(nats) as stub:
        requests = [
            (stub.GetRun(trainer_pb2.GetRunRequest(run_id="none"), timeout=10), "RUN_NOT_FOUND"),
            (start(stub, bad), "INVALID_CONFIG"),
            (start(stub, config | {"model": str(tmp_path / "nowhere")}), "INVALID_CONFIG"),
        ]
        for request, reason in requests:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await request
            assert from_rpc(raised.value).reason == reason
        run_id = await start(stub, config)
        await start(stub, config)
        for other, reason in (
            (config | {"seed": 5}, "RUN_CONFLICT"),
            (run_config(tmp_path / "two", tiny_model), "BUSY"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await start(stub, other)
            assert from_rpc(raised.value).reason == reason
        await stub.StopRun(trainer_pb2.StopRunRequest(run_id=run_id), timeout=10)
        await watch_until(stub, run_id)


@pytest.mark.slow
async def test_with_a_run_in_its_configuration_the_process_does_it_and_exits_0(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    run = run_config(tmp_path / "job", tiny_model, rl={"iterations": 1})
    async with (
        playing(nats.url, tiny_model),
        trainer_process(trainer_config(nats, run=run), tmp_path) as process,
    ):
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0
    assert (tmp_path / "job" / "ledger.sqlite").is_file()


async def test_a_process_told_to_end_before_its_run_is_over_exits_143(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    config = trainer_config(nats, run=run_config(tmp_path / "job", tiny_model))
    async with trainer_process(config, tmp_path) as process:
        async with asyncio.timeout(SECONDS):
            while not (tmp_path / "job" / "ledger.sqlite").is_file():  # noqa: ASYNC110  a file wakes nobody
                await asyncio.sleep(0.1)
            process.terminate()
            assert await process.wait() == 143


async def test_a_run_that_another_try_would_fail_again_is_exit_code_3(
    nats: NatsServer, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "demos").touch()
    run = run_config(tmp_path / "job", tiny_model, bc={"demonstrations": str(tmp_path / "demos")})
    async with trainer_process(trainer_config(nats, run=run), tmp_path) as process:
        assert await asyncio.wait_for(process.wait(), SECONDS) == 3


async def test_a_model_directory_that_is_missing_is_one_line_and_exit_code_2(nats: NatsServer, tmp_path: Path) -> None:
    run = run_config(tmp_path / "job", tmp_path / "nowhere")
    async with trainer_process(trainer_config(nats, run=run), tmp_path) as process:
        assert await asyncio.wait_for(process.wait(), SECONDS) == 2
    last = (tmp_path / "trainer.log").read_text().splitlines()[-1]
    assert last.startswith("trainer: ")
    assert "holds no model" in last
