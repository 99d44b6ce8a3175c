"""One update of the policy: whole groups in, gradient steps, numbers out.

The log-probabilities that the loss compares with are computed once, when the batch begins: under the policy (pi_old)
and, if there is a KL term, under the reference. A batch that is a single step needs no pass for pi_old: it is the
step's own value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from webagent_trainer.advantage import group_advantages
from webagent_trainer.batches import LearningRow, minibatches
from webagent_trainer.config import RlConfig
from webagent_trainer.crew import Crew
from webagent_trainer.insight import pull_shares
from webagent_trainer.learner import Objective, StepReport
from webagent_trainer.lineage import Lineage
from webagent_trainer.loss import turn_weights
from webagent_trainer.rows import Episode
from webagent_trainer.stages import Stages


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """The episodes of one group that are learned from; their rewards vary."""

    task: str
    episodes: tuple[Episode, ...]


def learning_rows(group: LiveGroup, config: RlConfig, lineage: Lineage) -> list[LearningRow]:
    """A group's rows, each weighted by its n_ij."""
    advantages = group_advantages([episode.reward for episode in group.episodes])
    rows = []
    for episode, advantage in zip(group.episodes, advantages, strict=True):
        weights = turn_weights(
            episode.turn_lengths,
            group_size=len(group.episodes),
            turn_budget=config.agent.max_turns,
            normalizer=config.normalizer,
        )
        for row, weight in zip(episode.rows, [w for w in weights if w], strict=True):
            rows.append(
                LearningRow(
                    context=row.context,
                    reply=row.reply,
                    weight=weight,
                    advantage=advantage,
                    turns=len(episode.turn_lengths),
                    sampler=row.logprobs,
                    # The sampler saw another context than the released one: its ratio says nothing, w is 1.
                    stale=tuple(
                        not config.official_release and lineage.staleness(version) != 0 for version in row.versions
                    ),
                )
            )
    return rows


def update(
    crew: Crew,
    groups: Sequence[LiveGroup],
    config: RlConfig,
    lineage: Lineage,
    chance: random.Random,
    stages: Stages,
    *,
    iteration: int,
) -> dict[str, float]:
    """Steps on the groups as the configuration says, and the numbers of it."""
    rows = [learning_rows(group, config, lineage) for group in groups]
    with stages.measure("logprobs"):
        if config.kl_coefficient > 0:
            rows = _filled(rows, crew.logprobs(_flat(rows), reference=True), "reference")
        if config.epochs > 1 or (config.minibatch_rows or math.inf) < sum(map(len, rows)):
            rows = _filled(rows, crew.logprobs(_flat(rows)), "old")
    objective = Objective(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl_coefficient=config.kl_coefficient,
        kl_corrected=config.kl_corrected,
        sampler_ratio_cap=config.sampler_ratio_cap,
    )
    reports: list[StepReport] = []
    with stages.measure("train"):
        for chosen, rate in steps([len(group) for group in rows], config, chance, iteration=iteration):
            batch = [replace(row, weight=row.weight / len(chosen)) for index in chosen for row in rows[index]]
            reports.append(crew.learn(batch, objective, rate))
    return _numbers(_flat(rows), reports, stages)


def steps(
    sizes: Sequence[int], config: RlConfig, chance: random.Random, *, iteration: int
) -> list[tuple[list[int], float]]:
    """Which of the items (of these many rows) each step of an update takes, and its learning rate.

    Over the steps of the first update the rate rises linearly: Adam does not know the gradient's size yet and would
    move every parameter as far as it ever does. After that it is constant, or falls linearly from update to update
    towards 0 at the end of the phase.
    """
    chosen = [each for _ in range(config.epochs) for each in minibatches(sizes, config.minibatch_rows, chance)]
    peak = config.optimizer.learning_rate
    if config.schedule == "linear":
        peak *= 1.0 - iteration / config.iterations
    rates = [(step + 1) / len(chosen) if iteration == 0 else 1.0 for step in range(len(chosen))]
    return [(each, peak * rate) for each, rate in zip(chosen, rates, strict=True)]


def _numbers(rows: Sequence[LearningRow], reports: Sequence[StepReport], stages: Stages) -> dict[str, float]:
    total = {name: sum(report.sums[name] for report in reports) for name in reports[0].sums}
    useful = sum(len(row.context) + len(row.reply) for row in rows) * total["tokens"]
    useful /= sum(len(row.reply) for row in rows)
    seconds = stages.seconds["train"]
    ratio, spread, widest = _ratio(rows, reports)
    return {
        "steps": float(len(reports)),
        "rows": float(len(rows)),
        "tokens": float(sum(len(row.reply) for row in rows)),
        "loss": total["loss"] / len(reports),
        "kl": total["kl"] / total["tokens"],
        "clipped_share": total["clipped"] / total["tokens"],
        "surprise": total["surprise"] / total["tokens"],
        "entropy": total["entropy"] / total["entropy_tokens"],
        "gradient_norm": sum(report.gradient_norm for report in reports) / len(reports),
        "ratio_mean": ratio,
        "ratio_spread": spread,
        "log_ratio_max": widest,
        "tokens_per_second": useful / seconds,
        "computed_tokens_per_second": total["computed"] / seconds,
        **pull_shares(total),
    }


def _ratio(rows: Sequence[LearningRow], reports: Sequence[StepReport]) -> tuple[float, float, float]:
    """Mean and deviation of trainer over sampler at equal weights, and the largest |log ratio|; NaN: no such tokens."""
    if not rows[0].old:
        sums = reports[0].sums
        return *_moments(sums["ratio"], sums["ratio_squares"], sums["ratio_tokens"]), reports[0].max_log_ratio
    gaps = [
        old - sampler
        for row in rows
        for old, sampler, stale in zip(row.old, row.sampler, row.stale, strict=True)
        if not stale
    ]
    ratios = [math.exp(gap) for gap in gaps]
    squares = sum(ratio * ratio for ratio in ratios)
    return *_moments(sum(ratios), squares, len(ratios)), max(map(abs, gaps), default=0.0)


def _moments(total: float, squares: float, count: float) -> tuple[float, float]:
    if not count:
        return math.nan, math.nan
    mean = total / count
    return mean, math.sqrt(max(squares / count - mean * mean, 0.0))


def _filled(
    groups: Sequence[Sequence[LearningRow]], values: Sequence[tuple[float, ...]], field: str
) -> list[list[LearningRow]]:
    """The rows with one log-probability field set, in order."""
    source = iter(values)
    return [[replace(row, **{field: next(source)}) for row in group] for group in groups]  # type: ignore[arg-type]


def _flat(groups: Sequence[Sequence[LearningRow]]) -> list[LearningRow]:
    return [row for group in groups for row in group]
