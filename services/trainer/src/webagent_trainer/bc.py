"""Behaviour cloning: the mean negative log-likelihood of the demonstrations' reply tokens, epoch by epoch.

The phase ends after its epochs, or earlier once the loss on held-out demonstrations has stopped falling. Its result is
the epoch with the lowest held-out loss; without held-out episodes it is the last.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import structlog
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited

from webagent_trainer.batches import LearningRow
from webagent_trainer.chance import seeded
from webagent_trainer.config import BcConfig
from webagent_trainer.errors import RunFailedError
from webagent_trainer.learner import Objective, StepReport
from webagent_trainer.rows import Row, demonstration_rows
from webagent_trainer.run import Run

log = structlog.get_logger()

PHASE = "bc"


@dataclass
class CloningState:
    """What a checkpoint remembers of the phase."""

    epoch: int = 0
    # Batches of the epoch that are done.
    batch: int = 0
    step: int = 0
    best_loss: float | None = None
    best_epoch: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields, as JSON values."""
        return asdict(self)


def read_demonstrations(path: Path, *, vocabulary: int) -> list[list[Row]]:
    """The rows of each successful episode of a file of demonstrations, ordered by task and seed.

    The file has them as they came to their ends, in another order each time, and the order decides what is learned.
    """
    if not path.is_file():
        raise RunFailedError("NO_DEMONSTRATIONS", f"{path} does not exist; record demonstrations first")
    # The rows alone are kept: an imported file's pages are far larger.
    episodes = [
        (_task_and_seed(trajectory), demonstration_rows(trajectory, vocabulary=vocabulary))
        for trajectory in delimited.read(path, trajectory_pb2.Trajectory)
    ]
    kept = [rows for _, rows in sorted(episodes, key=itemgetter(0)) if rows]
    if not kept:
        raise RunFailedError(
            "NO_DEMONSTRATIONS", f"none of the {len(episodes)} episodes in {path} was judged successful"
        )
    return kept


def split(episodes: Sequence[list[Row]], share: float, chance: Random) -> tuple[list[Row], list[Row]]:
    """Rows to learn and rows that only measure; an episode is wholly one or the other."""
    order = list(episodes)
    chance.shuffle(order)
    held_out = min(round(share * len(order)), len(order) - 1)
    return _flat(order[held_out:]), _flat(order[:held_out])


def learning_rate(config: BcConfig, step: int, steps: int) -> float:
    """The rate of step `step` (from 0) of `steps`: it rises linearly, then falls by the schedule."""
    peak = config.optimizer.learning_rate
    warmup = math.ceil(config.warmup_share * steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    left = 1.0 - (step - warmup) / max(1, steps - warmup)
    if config.schedule == "cosine":
        return peak * 0.5 * (1.0 - math.cos(math.pi * left))
    return peak * left if config.schedule == "linear" else peak


def clone(run: Run, config: BcConfig, state: CloningState) -> None:
    """Runs the phase from `state` on and publishes its result."""
    episodes = read_demonstrations(config.demonstrations, vocabulary=run.vocabulary)
    rows, held_out = split(episodes, config.held_out_share, seeded("held out", run.config.seed))
    steps = config.epochs * math.ceil(len(rows) / config.batch_rows)
    run.begin(PHASE, iterations=steps, done=state.step)
    log.info("cloning", episodes=len(episodes), rows=len(rows), held_out_rows=len(held_out), steps=steps)
    while state.epoch < config.epochs and state.epoch - state.best_epoch < config.patience:
        _epoch(run, config, state, rows, steps)
        _measure(run, state, held_out)
        if state.epoch % run.checkpoint_every == 0:
            run.checkpoint(PHASE, state.as_dict())
    if state.best_epoch != state.epoch:
        run.return_to_best(config.optimizer)
    prompts = [row.context for row in rows[: 4 * run.config.publish.canaries]]
    run.publish(PHASE, prompts, last=True)


def _epoch(run: Run, config: BcConfig, state: CloningState, rows: Sequence[Row], steps: int) -> None:
    # Derived from the seed, so that a resumed run goes on in the same order.
    order = seeded("epoch", run.config.seed, state.epoch).sample(range(len(rows)), len(rows))
    while state.batch * config.batch_rows < len(order):
        run.stop_point(PHASE, state.as_dict)
        start = state.batch * config.batch_rows
        batch = [rows[index] for index in order[start : start + config.batch_rows]]
        tokens = sum(len(row.reply) for row in batch)
        learning = [LearningRow(row.context, row.reply, weight=1.0 / tokens) for row in batch]
        began = time.monotonic()
        report = run.crew.learn(learning, Objective(cloning=True), learning_rate(config, state.step, steps))
        state.batch += 1
        state.step += 1
        run.note(_metrics(state, report, learning, time.monotonic() - began), iteration=state.step)
    state.epoch += 1
    state.batch = 0


def _measure(run: Run, state: CloningState, held_out: Sequence[Row]) -> None:
    if not held_out:
        state.best_epoch = state.epoch
        return
    logprobs = run.crew.logprobs([LearningRow(row.context, row.reply, weight=1.0) for row in held_out])
    loss = -fmean(value for row in logprobs for value in row)
    log.info("epoch_done", epoch=state.epoch, held_out_loss=round(loss, 4))
    run.note({"held_out_loss": loss}, iteration=state.step)
    if state.best_loss is None or loss < state.best_loss:
        state.best_loss, state.best_epoch = loss, state.epoch
        run.keep_as_best()


def _metrics(state: CloningState, report: StepReport, rows: Sequence[LearningRow], seconds: float) -> dict[str, float]:
    useful = sum(len(row.context) + len(row.reply) for row in rows)
    return {
        "epoch": float(state.epoch + 1),
        "loss": report.sums["loss"],
        "entropy": report.sums["entropy"] / report.sums["entropy_tokens"],
        "gradient_norm": report.gradient_norm,
        "rows": float(len(rows)),
        "tokens": report.sums["tokens"],
        "computed_tokens_per_second": report.sums["computed"] / seconds,
        "tokens_per_second": useful / seconds,
        "train_seconds": seconds,
    }


def _task_and_seed(trajectory: trajectory_pb2.Trajectory) -> tuple[str, str, int]:
    episode = trajectory.episode
    return episode.task.suite, episode.task.task_id, episode.seed


def _flat(episodes: Sequence[list[Row]]) -> list[Row]:
    return [row for rows in episodes for row in rows]
