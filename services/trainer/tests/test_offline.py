"""Learning from stored trajectories, and beginning with weights that another run left."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.config import validate
from webagent_runtime.queue import Queue
from webagent_trainer.batches import LearningRow
from webagent_trainer.board import Board
from webagent_trainer.config import RunConfig
from webagent_trainer.crew import Crew, join
from webagent_trainer.errors import RunFailedError
from webagent_trainer.exchange import Exchange
from webagent_trainer.learner import Objective, StepReport
from webagent_trainer.offline import read_groups
from webagent_trainer.phases import train
from webagent_trainer.testing import VOCABULARY, write_stored


def run_config(directory: Path, model: Path, **changes: Any) -> RunConfig:
    rl = {
        "suite": "toy",
        "tasks": ["a"],
        "seeds": {"first": 0, "count": 100},
        "iterations": 3,
        "groups": 2,
        "optimizer": {"learning_rate": 1e-3},
        "kl_coefficient": 0.0,
        **changes.pop("rl", {}),
    }
    values = {"run_directory": directory, "model": model, "deepspeed": {"threads": 1, "bf16": False}, "rl": rl}
    return validate(RunConfig, values | {"checkpoints": {"every": 2}} | changes, source="test")


class DyingCrew(Crew):
    """Ends at its fourth step, as a crash would: nothing is saved."""

    steps = 0

    def learn(self, rows: Sequence[LearningRow], objective: Objective, learning_rate: float) -> StepReport:
        self.steps += 1
        if self.steps == 4:
            raise RuntimeError("power cut")
        return super().learn(rows, objective, learning_rate)


async def do(queue: Queue, config: RunConfig, crew: type[Crew] = Crew) -> list[dict[str, Any]]:
    join(60)
    exchange = Exchange(asyncio.get_running_loop(), queue)
    config.run_directory.mkdir(exist_ok=True)
    board = Board(config.run_directory.name)
    await asyncio.to_thread(train, config, crew=crew(), exchange=exchange, board=board, books=None)
    return [json.loads(line) for line in (config.run_directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["m-grpo", pytest.param("awr", marks=pytest.mark.slow)])
async def test_a_run_learns_from_a_file_and_its_weights_begin_another(
    queue: Queue, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    path = write_stored(tmp_path / "old.trajectories")
    first = run_config(tmp_path / f"first-{name}", tiny_model, rl={"stored": path, "method": {"name": name}})
    lines = await do(queue, first)
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert all(line["groups_live"] == 2 and line["reward_mean"] == 0.5 for line in lines)
    assert not (first.run_directory / "ledger.sqlite").exists()
    newest = max(int(entry.name) for entry in (first.run_directory / "policies").iterdir())
    source = first.run_directory / "policies" / str(newest)
    changes = {"rl": {"stored": path, "iterations": 1}, "start_from": source}
    begun = await do(queue, run_config(tmp_path / f"second-{name}", tiny_model, **changes))
    # What the first run learned is there at the second one's first step.
    assert begun[0]["surprise"] != pytest.approx(lines[0]["surprise"], abs=1e-3)
    # A run that is done is not done again.
    assert len(await do(queue, first)) == len(lines)


@pytest.mark.parametrize("name", ["m-grpo", pytest.param("webrl", marks=pytest.mark.slow)])
async def test_a_run_that_crashed_goes_on_along_the_curve_of_one_that_did_not(
    queue: Queue, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    path = write_stored(tmp_path / "old.trajectories")
    rl = {"stored": path, "iterations": 6, "method": {"name": name}}
    whole = await do(queue, run_config(tmp_path / f"whole-{name}", tiny_model, rl=rl))
    crashed = run_config(tmp_path / f"crashed-{name}", tiny_model, rl=rl)
    with pytest.raises(RuntimeError, match="power cut"):
        await do(queue, crashed, DyingCrew)
    lines = await do(queue, crashed)
    # The checkpoint of iteration 2 is the newest: one iteration is done again.
    assert [line["iteration"] for line in lines] == [1, 2, 3, 3, 4, 5, 6]
    curve = {line["iteration"]: (line["loss"], line["gradient_norm"], line["surprise"]) for line in lines}
    assert curve == {line["iteration"]: (line["loss"], line["gradient_norm"], line["surprise"]) for line in whole}


def test_an_episode_that_a_file_holds_twice_is_learned_from_once(tmp_path: Path) -> None:
    path = write_stored(tmp_path / "old.trajectories")
    first, *_ = stored = list(delimited.read(path, trajectory_pb2.Trajectory))
    first.reward = 0.5
    delimited.append(path, first)
    config = run_config(tmp_path, tmp_path).rl
    assert config is not None
    groups = read_groups(path, config, vocabulary=VOCABULARY)
    episodes = [episode for group in groups for episode in group.episodes]
    assert [episode.episode_id for episode in episodes] == [each.episode.episode_id for each in stored]
    assert episodes[0].reward == 1.0


def test_a_file_without_a_usable_episode_says_why(tmp_path: Path) -> None:
    path = write_stored(tmp_path / "old.trajectories")
    config = run_config(tmp_path, tmp_path, rl={"sampling": {"temperature": 0.5, "logprobs": "processed"}}).rl
    assert config is not None
    with pytest.raises(RunFailedError, match="12 OTHER_SAMPLING") as failed:
        read_groups(path, config, vocabulary=VOCABULARY)
    assert failed.value.reason == "NO_TRAJECTORIES"
