"""The methods of the paper's comparison, behind one interface: episodes in, gradient steps and numbers out.

    m-grpo       update.py
    filtered-bc  L = - sum over turns of successful episodes  sum_t log pi(a_t)                  / tokens of those turns
    awr          L = - sum over all turns  min(exp(A_j / beta), cap)  sum_t log pi(a_t)          / tokens of those turns
    digirl       L = - sum over turns with A_j > floor, of episodes that beat their value  sum_t log pi(a_t)  / tokens
    webrl        L = mean over turns with A_j > 0 of  huber( beta mean_t log(pi / pi_ref) - 1 )
                 pi_ref: the policy when the iteration began; to the fresh turns come those of earlier successes whose
                 confidence, exp(mean_t log pi), lies within bounds: neither known by heart nor far from the policy

A_j: advantages.py. Values are learned from all turns before they are asked: towards 1 where the episode succeeded.
digirl's value of an episode is another, learned from first turns alone: what instruction and page promise. The mean
over tokens inside webrl's term keeps long replies from dominating it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Protocol

from torch import Tensor

from webagent_trainer.advantage import has_variance
from webagent_trainer.advantages import awr_weights, digirl_advantages, webrl_advantages
from webagent_trainer.batches import LearningRow
from webagent_trainer.config import RlConfig
from webagent_trainer.crew import Crew
from webagent_trainer.learner import Objective, StepReport
from webagent_trainer.lineage import Lineage
from webagent_trainer.method_config import AwrConfig, DigiRlConfig, FilteredBcConfig, MGrpoConfig, WebRlConfig
from webagent_trainer.replay import Replay
from webagent_trainer.rows import Episode
from webagent_trainer.stages import Stages
from webagent_trainer.update import LiveGroup, steps, update
from webagent_trainer.values import ValueHeads

_VALUES = "values.safetensors"
_PROMISES = "promises.safetensors"
_REPLAY = "replay.json"


class Method(Protocol):
    """One way to learn from episodes."""

    def takes(self, rewards: Sequence[float]) -> bool:
        """Whether a group with these rewards is learned from."""

    def update(
        self, groups: Sequence[LiveGroup], lineage: Lineage, chance: random.Random, stages: Stages, *, iteration: int
    ) -> dict[str, float]:
        """Takes steps on the groups' episodes; `iteration` counts the phase's from 0."""

    def save(self, directory: Path) -> None:
        """Writes what a resumed run needs beside the engine's files."""

    def restore(self, directory: Path) -> None:
        """Reads what `save` wrote."""


class MGrpo:
    """Multi-turn GRPO; it remembers nothing between iterations."""

    def __init__(self, crew: Crew, config: RlConfig) -> None:
        self._crew = crew
        self._config = config

    def takes(self, rewards: Sequence[float]) -> bool:
        """See Method."""
        return has_variance(rewards, tolerance=self._config.variance_tolerance)

    def update(
        self, groups: Sequence[LiveGroup], lineage: Lineage, chance: random.Random, stages: Stages, *, iteration: int
    ) -> dict[str, float]:
        """See Method."""
        return update(self._crew, groups, self._config, lineage, chance, stages, iteration=iteration)

    def save(self, directory: Path) -> None:
        """See Method."""

    def restore(self, directory: Path) -> None:
        """See Method."""


class Cloning:
    """Weighted cloning of turns: what subclasses differ in is the weight of a turn; 0 leaves it out."""

    objective = Objective(cloning=True)

    def __init__(self, crew: Crew, config: RlConfig) -> None:
        self._crew = crew
        self._config = config

    def takes(self, rewards: Sequence[float]) -> bool:
        """See Method."""
        return bool(rewards)

    def update(
        self, groups: Sequence[LiveGroup], lineage: Lineage, chance: random.Random, stages: Stages, *, iteration: int
    ) -> dict[str, float]:
        """See Method."""
        episodes = [episode for group in groups for episode in group.episodes]
        with stages.measure("logprobs"):
            rows, metrics = self._weighted(episodes, chance)
        with stages.measure("train"):
            reports = self._steps(rows, chance, iteration=iteration)
        metrics |= {"rows": float(len(rows)), "steps": float(len(reports))}
        metrics["rows_share"] = len(rows) / sum(len(episode.rows) for episode in episodes)
        if reports:
            tokens = sum(report.sums["tokens"] for report in reports)
            metrics |= {
                "loss": fmean(report.sums["loss"] for report in reports),
                "tokens": float(sum(len(row.reply) for row in rows)),
                "surprise": sum(report.sums["surprise"] for report in reports) / tokens,
                "entropy": sum(r.sums["entropy"] for r in reports) / sum(r.sums["entropy_tokens"] for r in reports),
                "gradient_norm": fmean(report.gradient_norm for report in reports),
            }
        return metrics

    def save(self, directory: Path) -> None:
        """See Method."""

    def restore(self, directory: Path) -> None:
        """See Method."""

    def _weighted(
        self, episodes: Sequence[Episode], chance: random.Random
    ) -> tuple[list[LearningRow], dict[str, float]]:
        weights, metrics = self._weights(episodes)
        rows = [
            LearningRow(row.context, row.reply, weight=weight, turns=len(episode.turn_lengths))
            for episode, of_turns in zip(episodes, weights, strict=True)
            for row, weight in zip(episode.rows, of_turns, strict=True)
            if weight
        ]
        return rows, metrics

    def _weights(self, episodes: Sequence[Episode]) -> tuple[list[list[float]], dict[str, float]]:
        raise NotImplementedError

    def _steps(self, rows: Sequence[LearningRow], chance: random.Random, *, iteration: int) -> list[StepReport]:
        reports = []
        for chosen, rate in steps([1] * len(rows), self._config, chance, iteration=iteration) if rows else ():
            batch = self._normalized([rows[index] for index in chosen])
            reports.append(self._crew.learn(batch, self.objective, rate))
        return reports

    @staticmethod
    def _normalized(rows: Sequence[LearningRow]) -> list[LearningRow]:
        tokens = sum(len(row.reply) for row in rows)
        return [replace(row, weight=row.weight / tokens) for row in rows]


class FilteredBc(Cloning):
    """See the module."""

    def _weights(self, episodes: Sequence[Episode]) -> tuple[list[list[float]], dict[str, float]]:
        return [[float(episode.reward > 0)] * len(episode.rows) for episode in episodes], {}


class Valued(Cloning):
    """Cloning by learned values."""

    def __init__(self, crew: Crew, config: RlConfig, values: ValueHeads) -> None:
        super().__init__(crew, config)
        self._heads = values

    def save(self, directory: Path) -> None:
        """See Method."""
        self._heads.save(directory / _VALUES)

    def restore(self, directory: Path) -> None:
        """See Method."""
        self._heads.restore(directory / _VALUES)

    def _states(self, episodes: Sequence[Episode]) -> Tensor:
        return self._crew.states([LearningRow(r.context, r.reply, weight=1.0) for e in episodes for r in e.rows])

    def _learned_values(
        self, episodes: Sequence[Episode], states: Tensor
    ) -> tuple[list[list[float]], dict[str, float]]:
        """V of each turn's state, after the heads have learned from these episodes."""
        outcomes = [float(episode.reward > 0) for episode in episodes for _ in episode.rows]
        loss = self._heads.fit(states, outcomes)
        source = iter(self._heads.values(states))
        values = [[next(source) for _ in episode.rows] for episode in episodes]
        return values, {"value_loss": loss, "value_mean": fmean(value for turns in values for value in turns)}


class Awr(Valued):
    """See the module."""

    def __init__(self, crew: Crew, config: RlConfig, method: AwrConfig, *, seed: int) -> None:
        super().__init__(crew, config, ValueHeads(method.values, seed=seed))
        self._method = method

    def _weights(self, episodes: Sequence[Episode]) -> tuple[list[list[float]], dict[str, float]]:
        values, metrics = self._learned_values(episodes, self._states(episodes))
        settings = {"temperature": self._method.temperature, "cap": self._method.weight_cap}
        pairs = zip(episodes, values, strict=True)
        return [awr_weights(episode.reward, of_turns, **settings) for episode, of_turns in pairs], metrics


class DigiRl(Valued):
    """See the module."""

    def __init__(self, crew: Crew, config: RlConfig, method: DigiRlConfig, *, seed: int) -> None:
        super().__init__(crew, config, ValueHeads(method.values, seed=seed))
        self._promises = ValueHeads(method.values, seed=seed + 1)
        self._method = method

    def save(self, directory: Path) -> None:
        """See Method."""
        super().save(directory)
        self._promises.save(directory / _PROMISES)

    def restore(self, directory: Path) -> None:
        """See Method."""
        super().restore(directory)
        self._promises.restore(directory / _PROMISES)

    def _weights(self, episodes: Sequence[Episode]) -> tuple[list[list[float]], dict[str, float]]:
        states = self._states(episodes)
        values, metrics = self._learned_values(episodes, states)
        places = accumulate((len(episode.rows) for episode in episodes[:-1]), initial=0)
        firsts = states[list(places)]
        metrics["promise_loss"] = self._promises.fit(firsts, [float(episode.reward > 0) for episode in episodes])
        weights = []
        for episode, of_turns, promise in zip(episodes, values, self._promises.values(firsts), strict=True):
            beat = episode.reward - promise > 0
            advantages = digirl_advantages(episode.reward, of_turns, decay=self._method.decay)
            weights.append([float(beat and advantage > self._method.advantage_floor) for advantage in advantages])
        return weights, metrics


class WebRl(Valued):
    """See the module."""

    def __init__(self, crew: Crew, config: RlConfig, method: WebRlConfig, *, seed: int) -> None:
        super().__init__(crew, config, ValueHeads(method.values, seed=seed))
        self._method = method
        self._replay = Replay(method.replay_episodes)
        self.objective = Objective(kl_strength=method.kl_strength)

    def save(self, directory: Path) -> None:
        """See Method."""
        super().save(directory)
        self._replay.save(directory / _REPLAY)

    def restore(self, directory: Path) -> None:
        """See Method."""
        super().restore(directory)
        self._replay.restore(directory / _REPLAY)

    def _weighted(
        self, episodes: Sequence[Episode], chance: random.Random
    ) -> tuple[list[LearningRow], dict[str, float]]:
        past = self._candidates(len(episodes), chance)
        values, metrics = self._learned_values(episodes, self._states(episodes))
        fresh = self._positive(episodes, values)
        old: list[LearningRow] = []
        if past:
            source = iter(self._heads.values(self._states(past)))
            old = self._positive(past, [[next(source) for _ in episode.rows] for episode in past])
        rows = self._referred([*fresh, *old])
        kept = [row for row in rows[len(fresh) :] if self._half_known(row)]
        most = round(self._method.replay_share * len(fresh))
        kept = chance.sample(kept, most) if len(kept) > most else kept
        self._replay.add(episodes)
        return [*rows[: len(fresh)], *kept], metrics | {"replayed": float(len(kept))}

    def _candidates(self, fresh: int, chance: random.Random) -> list[Episode]:
        """As many past episodes as may be replayed: each costs a pass for its values and one for its confidence."""
        past = self._replay.episodes()
        most = round(self._method.replay_share * fresh)
        return chance.sample(past, most) if len(past) > most else past

    def _positive(self, episodes: Sequence[Episode], values: Sequence[Sequence[float]]) -> list[LearningRow]:
        rows = []
        for episode, of_turns in zip(episodes, values, strict=True):
            advantages = webrl_advantages(
                episode.reward, of_turns, discount=self._method.discount, cost=self._method.turn_cost
            )
            for row, advantage in zip(episode.rows, advantages, strict=True):
                if advantage > 0:
                    turns = len(episode.turn_lengths)
                    rows.append(LearningRow(row.context, row.reply, weight=1.0, advantage=1.0, turns=turns))
        return rows

    def _referred(self, rows: Sequence[LearningRow]) -> list[LearningRow]:
        if not rows:
            return []
        return [replace(row, reference=own) for row, own in zip(rows, self._crew.logprobs(rows), strict=True)]

    def _half_known(self, row: LearningRow) -> bool:
        confidence = math.exp(fmean(row.reference))
        return self._method.least_confidence <= confidence <= self._method.most_confidence

    @staticmethod
    def _normalized(rows: Sequence[LearningRow]) -> list[LearningRow]:
        return [replace(row, weight=row.weight / len(rows)) for row in rows]


def method_of(crew: Crew, config: RlConfig, *, seed: int) -> Method:
    """The configured method."""
    makers: dict[type, Callable[[], Method]] = {
        MGrpoConfig: lambda: MGrpo(crew, config),
        FilteredBcConfig: lambda: FilteredBc(crew, config),
        AwrConfig: lambda: Awr(crew, config, config.method, seed=seed),  # type: ignore[arg-type]
        DigiRlConfig: lambda: DigiRl(crew, config, config.method, seed=seed),  # type: ignore[arg-type]
        WebRlConfig: lambda: WebRl(crew, config, config.method, seed=seed),  # type: ignore[arg-type]
    }
    return makers[type(config.method)]()
