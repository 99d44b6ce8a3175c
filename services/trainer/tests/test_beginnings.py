"""Weights without anything else: from a checkpoint or a version, whatever the engine that saved them."""

import asyncio
from pathlib import Path

import pytest
import torch
from webagent_runtime.config import validate
from webagent_runtime.queue import Queue
from webagent_trainer.batches import LearningRow
from webagent_trainer.beginnings import weights_of
from webagent_trainer.board import Board
from webagent_trainer.checkpoint import Checkpoints
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig, RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.errors import RunFailedError
from webagent_trainer.exchange import Exchange
from webagent_trainer.learner import Objective
from webagent_trainer.publish import write_model
from webagent_trainer.run import Run

OPTIMIZER = OptimizerConfig(learning_rate=1e-2)
CLONING = Objective(cloning=True)
ROWS = [LearningRow(tuple(range(3, 12)), (5, 6, 7), weight=0.2), LearningRow((3, 9, 4), (8,), weight=0.4)]


def begin(crew: Crew, model: Path, **settings: object) -> None:
    crew.begin(DeepSpeedConfig(threads=1, **settings))  # type: ignore[arg-type]
    crew.open(str(model), None, OPTIMIZER, 1.0)


@pytest.mark.parametrize(
    ("stage", "bf16"), [(1, False), *(pytest.param(n, True, marks=pytest.mark.slow) for n in (1, 2)), (3, True)]
)
def test_a_checkpoints_weights_are_taken_and_its_optimizer_is_not(
    crew: Crew, tiny_model: Path, tmp_path: Path, stage: int, bf16: bool
) -> None:
    begin(crew, tiny_model, zero_stage=stage, bf16=bf16)
    for _ in range(3):
        crew.learn(ROWS, CLONING, 1e-2)
    wanted = crew.logprobs(ROWS)
    Checkpoints(tmp_path / "checkpoints", keep=1).save({}, lambda path: crew.save(str(path)))
    found = weights_of(
        tmp_path / "checkpoints" / "1",
        base_model=tiny_model,
        into=tmp_path / "start",
        dtype=torch.bfloat16 if bf16 else torch.float32,
    )
    begin(crew, found, zero_stage=stage, bf16=bf16)
    assert crew.logprobs(ROWS) == wanted
    fresh = crew.learn(ROWS, CLONING, 1e-2), crew.logprobs(ROWS)
    begin(crew, tiny_model, zero_stage=stage, bf16=bf16)
    crew.restore(str(tmp_path / "checkpoints" / "1" / "engine"))
    resumed = crew.learn(ROWS, CLONING, 1e-2), crew.logprobs(ROWS)
    # The same gradient, but moments of their own.
    assert fresh[0].sums["loss"] == resumed[0].sums["loss"]
    assert fresh[1] != resumed[1]


def test_a_checkpoint_between_phases_or_damaged_is_a_clear_error(tiny_model: Path, tmp_path: Path) -> None:
    settings = {"base_model": tiny_model, "into": tmp_path / "start", "dtype": torch.float32}
    Checkpoints(tmp_path, keep=1).save({}, None)
    with pytest.raises(RunFailedError, match="holds no weights"):
        weights_of(tmp_path / "1", **settings)  # type: ignore[arg-type]
    (tmp_path / "1" / "state.json").unlink()
    with pytest.raises(RunFailedError, match="CHECKPOINT_DAMAGED"):
        weights_of(tmp_path / "1", **settings)  # type: ignore[arg-type]


LORA = {"lora": {"rank": 4, "alpha": 8}}


@pytest.mark.parametrize(("stage", "bf16"), [(1, False), pytest.param(3, True, marks=pytest.mark.slow)])
def test_adapters_are_trained_alone_and_published_merged(
    crew: Crew, tiny_model: Path, tmp_path: Path, stage: int, bf16: bool
) -> None:
    crew.begin(DeepSpeedConfig(threads=1, zero_stage=stage, bf16=bf16, **LORA))  # type: ignore[arg-type]
    crew.open(str(tiny_model), str(tiny_model), OPTIMIZER, 1.0)
    before = crew.logprobs(ROWS)
    first = crew.learn(ROWS, CLONING, 0.0)
    crew.open(str(tiny_model), str(tiny_model), OPTIMIZER, 1.0)
    assert crew.learn(ROWS, CLONING, 0.0) == first
    plain = {name: tensor.shape for name, tensor in crew.weights().items()}
    for _ in range(3):
        crew.learn(ROWS, CLONING, 1e-2)
    after = crew.logprobs(ROWS)
    assert sum(map(sum, after)) > sum(map(sum, before)) + 0.1
    assert crew.logprobs(ROWS, reference=True) == before
    assert crew.logprobs(ROWS) == after
    crew.save(str(tmp_path / "engine"))
    wanted = crew.learn(ROWS, CLONING, 1e-2).sums["loss"]
    crew.restore(str(tmp_path / "engine"))
    assert crew.learn(ROWS, CLONING, 1e-2).sums["loss"] == wanted
    crew.restore(str(tmp_path / "engine"))
    merged = crew.weights()
    begin(crew, tiny_model, zero_stage=stage, bf16=bf16)
    assert {name: tensor.shape for name, tensor in merged.items()} == plain
    assert plain == {name: tensor.shape for name, tensor in crew.weights().items()}
    write_model(merged, base_model=tiny_model, directory=tmp_path / "merged")
    begin(crew, tmp_path / "merged", zero_stage=stage, bf16=bf16)
    tolerance = 0.1 if bf16 else 1e-4
    flat = [value for row in crew.logprobs(ROWS) for value in row]
    assert flat == pytest.approx([value for row in after for value in row], abs=tolerance)


async def test_what_a_run_begins_with_is_served_before_it_is_learned_from(
    queue: Queue, crew: Crew, tiny_model: Path, tmp_path: Path
) -> None:
    rl = {"suite": "toy", "tasks": ["a"], "seeds": {"first": 0, "count": 100}}
    values = {"run_directory": tmp_path / "begun", "model": tiny_model, "start_from": tiny_model, "rl": rl}
    config = validate(RunConfig, values | {"deepspeed": {"threads": 1, "bf16": False}}, source="test")
    (tmp_path / "begun").mkdir()
    crew.begin(config.deepspeed)
    run = Run(config, crew=crew, exchange=Exchange(asyncio.get_running_loop(), queue), board=Board("begun"))

    def start() -> int:
        run.open(run.resume(), OPTIMIZER, after=None, reference=False, temperature=1.0)
        run.align("rl")
        return run.exchange.highest_version()

    version = await asyncio.to_thread(start)
    assert run.lineage.version == version > 0
    # What replicas served until then, the base model, is older by one.
    assert (run.lineage.staleness(version), run.lineage.staleness(0)) == (0, 1)
