"""Whatever is killed, in whatever order it comes back: the run ends as it would have, and no episode counts twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from webagent_runtime.testing import NatsServer, free_port, nats_server
from webagent_trainer.ledger import Ledger
from webagent_trainer.testing import ACK_SECONDS, trainer_process, write_stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PLAYER = """
import asyncio, sys
from itertools import cycle
from pathlib import Path
from webagent_trainer.testing import playing

async def main():
    async with playing(sys.argv[1], Path(sys.argv[2])) as player:
        rewards = cycle([1.0, 0.0])
        player.judge = lambda reply: next(rewards)
        await asyncio.Event().wait()

asyncio.run(main())
"""
# Of waits that end with an event: only a broken run uses them up.
SECONDS = 900.0
ITERATIONS = 6


def config(nats: NatsServer, directory: Path, model: Path, **rl: Any) -> dict[str, Any]:
    settings = {
        "suite": "toy",
        "tasks": ["a", "b"],
        "seeds": {"first": 100, "count": 100},
        "iterations": ITERATIONS,
        "groups": 4,
        "group_size": 4,
        "kl_coefficient": 0.0,
        "deadline_seconds": 600,
        "serve_seconds": 600,
        "sampling": {"max_tokens": 3} if "stored" not in rl else {},
        "optimizer": {"learning_rate": 1e-3},
        **rl,
    }
    run = {"run_directory": str(directory), "model": str(model), "checkpoints": {"every": 1}, "rl": settings}
    queue = {"url": nats.url, "ack_wait_seconds": ACK_SECONDS, "connect_timeout": 120}
    engine = {"threads": 1, "bf16": False}
    return {"server": {"port": free_port()}, "queue": queue, "run": run | {"deepspeed": engine}}


def lines(directory: Path) -> list[dict[str, Any]]:
    path = directory / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    # A line that is being written has no end yet.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def until(condition: Callable[[], bool], process: asyncio.subprocess.Process) -> None:
    """Returns once it holds or the process has ended."""
    async with asyncio.timeout(SECONDS):
        while not condition() and process.returncode is None:  # noqa: ASYNC110  a file wakes nobody
            await asyncio.sleep(0.05)


async def until_done(*command: str, log: Path, started: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """Runs the command as a supervisor does, again and again until it ends well; it ends with this call."""
    while True:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
        if not started.done():
            started.set_result(process)
        try:
            if await process.wait() == 0:
                return
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.parametrize("order", list(permutations(["queue", "player", "trainer"])), ids="-".join)
async def test_all_is_killed_and_comes_back_in_any_order(
    order: tuple[str, ...], tiny_model: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "killed"
    log = tmp_path / "log"
    (tmp_path / "player.py").write_text(PLAYER)
    with nats_server() as nats:
        (tmp_path / "trainer.yaml").write_text(yaml.safe_dump(config(nats, directory, tiny_model)))
        commands = {
            "player": [sys.executable, str(tmp_path / "player.py"), nats.url, str(tiny_model)],
            "trainer": [sys.executable, "-m", "webagent_trainer", "--config", str(tmp_path / "trainer.yaml")],
        }

        async def start(part: str) -> asyncio.Task[None]:
            started: asyncio.Future[asyncio.subprocess.Process] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(until_done(*commands[part], log=log, started=started))
            processes[part] = await started
            return task

        processes: dict[str, asyncio.subprocess.Process] = {}
        tasks = [await start("player"), await start("trainer")]
        await until(lambda: len(lines(directory)) >= 2, processes["trainer"])
        assert processes["trainer"].returncode is None, log.read_text()[-3000:]
        nats.kill()
        await ended(*tasks)
        restarted = {}
        for part in order:
            if part == "queue":
                await asyncio.to_thread(nats.start)
            else:
                restarted[part] = await start(part)
        try:
            done, _ = await asyncio.wait({*restarted.values()}, timeout=SECONDS, return_when="FIRST_COMPLETED")
            assert done == {restarted["trainer"]}, log.read_text()[-3000:]
        finally:
            await ended(*restarted.values())
    assert sorted({line["iteration"] for line in lines(directory)}) == list(range(1, ITERATIONS + 1))
    ledger = Ledger(directory / "ledger.sqlite")
    counts = ledger.counts()
    ledger.close()
    assert (counts["open"], counts["unused"], counts["refused"]) == (0, 0, 0)
    assert counts["dispatched"] == counts["scored"] + counts["invalid"] + counts["expired"] + counts["dead"]
    assert counts["scored"] == counts["trained"] + counts["stale"] + counts["no_variance"] + counts["surplus"]


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Kills what the tasks run, as `kill -9` does."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_sigterm_at_random_moments_leaves_the_curve_of_a_run_that_was_left_alone(
    tiny_model: Path, tmp_path: Path
) -> None:
    with nats_server() as nats:
        stored = write_stored(tmp_path / "old.trajectories")
        rl = {"stored": str(stored), "iterations": 40, "groups": 2}
        whole, ended = tmp_path / "whole", tmp_path / "ended"
        async with trainer_process(config(nats, whole, tiny_model, **rl), tmp_path) as process:
            assert await asyncio.wait_for(process.wait(), SECONDS) == 0
        settings = config(nats, ended, tiny_model, **rl)
        chance = random.Random(7)
        interrupted = 0
        while not lines(ended) or lines(ended)[-1]["iteration"] < 40:
            before = len(lines(ended))
            more = chance.randrange(-1, 9)
            async with trainer_process(settings, tmp_path) as process:
                # Anywhere: while it starts, or after some more iterations and a moment.
                await until(lambda: len(lines(ended)) >= before + more, process)  # noqa: B023  awaited here
                await asyncio.sleep(chance.random() * (6.0 if more < 0 else 0.1))
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    interrupted += 1
                code = await asyncio.wait_for(process.wait(), SECONDS)
            # Before there is anything to end in order, the signal just ends the process.
            assert code in {0, 143, -signal.SIGTERM}, (tmp_path / "trainer.log").read_text()[-3000:]
            assert interrupted < 40
    assert interrupted >= 3
    curves = [
        {line["iteration"]: (line["loss"], line["gradient_norm"], line["surprise"]) for line in lines(directory)}
        for directory in (whole, ended)
    ]
    assert curves[0] == curves[1]
    # In order, a run stops where it has just checkpointed: nothing is done twice.
    assert [line["iteration"] for line in lines(ended)] == list(range(1, 41))
