"""What an update hands to the learner: only live groups count, and episodes that were lost change nothing."""

import random
from collections.abc import Sequence

import pytest
from webagent_runtime.config import validate
from webagent_trainer.batches import LearningRow
from webagent_trainer.config import RlConfig
from webagent_trainer.crew import Crew
from webagent_trainer.learner import SUMS, Objective, StepReport
from webagent_trainer.lineage import Lineage
from webagent_trainer.rows import Episode, Row
from webagent_trainer.stages import Stages
from webagent_trainer.update import LiveGroup, learning_rows, steps, update


class Recorder(Crew):
    """Takes no step and remembers what it was asked for."""

    def __init__(self) -> None:
        self.batches: list[list[LearningRow]] = []

    def learn(self, rows: Sequence[LearningRow], objective: Objective, learning_rate: float) -> StepReport:
        self.batches.append(list(rows))
        return StepReport(dict.fromkeys(SUMS, 1.0), 1.0, 0.0)


def config(**changes: object) -> RlConfig:
    values = {"suite": "s", "tasks": ["a"], "seeds": {"first": 0, "count": 99}, "kl_coefficient": 0.0, **changes}
    return validate(RlConfig, values, source="test")


def episode(reward: float, *lengths: int, version: int = 0) -> Episode:
    rows = tuple(Row((1, 2), (5,) * n, (-0.5,) * n, (version,) * n) for n in lengths)
    return Episode("e", reward, rows, lengths)


def weight_of(rows: Sequence[LearningRow]) -> float:
    return sum(row.weight * len(row.reply) for row in rows)


@pytest.mark.parametrize("normalizer", ["turn-mean", "token-mean"])
def test_every_live_group_weighs_the_same_and_all_together_one(normalizer: str) -> None:
    groups = [
        LiveGroup("a", (episode(1.0, 3), episode(0.0, 2, 9, 4))),
        LiveGroup("a", (episode(1.0, 1, 1), episode(0.0, 7), episode(0.0, 2))),
    ]
    crew = Recorder()
    update(crew, groups, config(normalizer=normalizer), Lineage(), random.Random(0), Stages(), iteration=1)
    (batch,) = crew.batches
    assert weight_of(batch) == pytest.approx(1.0)
    assert weight_of([row for row in batch if row.turns in {1, 3} and row.weight]) > 0
    first = [row for group in groups[:1] for row in learning_rows(group, config(normalizer=normalizer), Lineage())]
    assert weight_of(first) == pytest.approx(1.0)


def test_an_episode_that_was_lost_leaves_the_others_as_if_it_had_never_been() -> None:
    left = (episode(1.0, 3), episode(0.0, 2), episode(0.0, 4))
    whole = learning_rows(LiveGroup("a", left), config(group_size=8), Lineage())
    alone = learning_rows(LiveGroup("a", left), config(group_size=3), Lineage())
    assert whole == alone
    assert sum(row.advantage for row in whole) == pytest.approx(0.0)


def test_minibatches_have_the_denominator_of_their_own_groups() -> None:
    groups = [LiveGroup("a", (episode(1.0, 3), episode(0.0, 2))) for _ in range(3)]
    crew = Recorder()
    crew.logprobs = lambda rows, *, reference=False: [(-0.5,) * len(row.reply) for row in rows]  # type: ignore[method-assign]
    update(crew, groups, config(minibatch_rows=4, epochs=2), Lineage(), random.Random(0), Stages(), iteration=1)
    assert [len(batch) for batch in crew.batches] == [4, 2, 4, 2]
    assert all(weight_of(batch) == pytest.approx(1.0) for batch in crew.batches)


def test_tokens_of_the_newest_version_are_not_stale_and_those_of_unknown_ones_are() -> None:
    lineage = Lineage([[0], [1], [2, 5]])
    group = LiveGroup("a", (episode(1.0, 1, version=5), episode(0.0, 1, version=1), episode(0.0, 1, version=9)))
    assert [row.stale for row in learning_rows(group, config(), lineage)] == [(False,), (True,), (True,)]
    released = learning_rows(group, config(official_release=True), lineage)
    assert not any(flag for row in released for flag in row.stale)


def test_the_rate_rises_over_the_first_update_only() -> None:
    settings = config(minibatch_rows=4, epochs=2)
    peak = settings.optimizer.learning_rate
    rates = [rate for _, rate in steps([2, 2, 2], settings, random.Random(0), iteration=0)]
    assert rates == pytest.approx([peak / 4, peak / 2, 3 * peak / 4, peak])
    assert [rate for _, rate in steps([2, 2, 2], settings, random.Random(0), iteration=1)] == [peak] * 4
    assert [rate for _, rate in steps([2, 2, 2], config(), random.Random(0), iteration=0)] == [peak]


def test_a_linear_schedule_takes_the_rate_from_update_to_update_towards_nothing() -> None:
    settings = config(schedule="linear", iterations=4)
    peak = settings.optimizer.learning_rate
    rates = [steps([1], settings, random.Random(0), iteration=iteration)[0][1] for iteration in range(4)]
    assert rates == pytest.approx([peak, 0.75 * peak, 0.5 * peak, 0.25 * peak])
