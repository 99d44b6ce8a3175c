"""Tasks are drawn by the variance of their rewards, none starves, and equal seeds draw equal tasks."""

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from webagent_trainer.config import SeedRange, TaskSamplerConfig
from webagent_trainer.sampler import TaskSampler

TASKS = ("easy", "half", "hard")
SEEDS = SeedRange(first=1000, count=500)


def sampler(seed: int = 0) -> TaskSampler:
    return TaskSampler(TASKS, SEEDS, TaskSamplerConfig(memory=0.5), seed=seed)


def test_what_always_or_never_succeeds_is_drawn_less_but_never_starves() -> None:
    source = sampler()
    for _ in range(20):
        source.learn("easy", 1.0)
        source.learn("half", 0.5)
        source.learn("hard", 0.0)
    drawn = Counter(task for number in range(20) for task, _ in source.draw(16, before=16 * number))
    assert drawn["half"] > 2 * drawn["easy"]
    assert min(drawn["easy"], drawn["hard"]) >= 20


def test_what_depends_on_the_seed_alone_is_drawn_less_than_what_depends_on_chance() -> None:
    source = sampler()
    for _ in range(20):
        source.learn("easy", 1.0)
        source.learn("easy", 0.0)
        source.learn("half", 0.5)
    drawn = Counter(task for number in range(20) for task, _ in source.draw(16, before=16 * number))
    assert drawn["half"] > 2 * drawn["easy"]


def test_unknown_tasks_are_drawn_evenly() -> None:
    assert set(Counter(task for task, _ in sampler().draw(30, before=0)).values()) == {10}


@given(st.integers(1, 40), st.integers(0, 5))
def test_seeds_stay_in_their_range(groups: int, seed: int) -> None:
    drawn = sampler(seed).draw(groups, before=0)
    assert len(drawn) == groups
    assert all(SEEDS.first <= number < SEEDS.end for _, number in drawn)


@given(st.lists(st.tuples(st.sampled_from(TASKS), st.floats(0, 1)), max_size=10), st.integers(1, 20))
def test_a_restored_sampler_draws_what_the_interrupted_one_would_have(
    learned: list[tuple[str, float]], groups: int
) -> None:
    first = sampler()
    for task, success in learned:
        first.learn(task, success)
    resumed = sampler()
    resumed.restore(json.loads(json.dumps(first.state())))
    assert resumed.draw(groups, before=7) == first.draw(groups, before=7)
    assert resumed.success == first.success


def test_a_task_that_is_new_since_the_checkpoint_starts_unknown() -> None:
    old = TaskSampler(("easy",), SEEDS, TaskSamplerConfig(), seed=0)
    old.learn("easy", 1.0)
    resumed = sampler()
    resumed.restore(old.state())
    assert resumed.success["half"] == 0.5
    assert resumed.success["easy"] > 0.5


def test_a_group_of_a_task_that_is_no_longer_configured_teaches_the_sampler_nothing() -> None:
    source = sampler()
    before = source.state()
    source.learn("removed", 1.0)
    assert source.state() == before


def test_each_draw_of_a_run_has_seeds_of_its_own() -> None:
    source = sampler()
    draws = [tuple(source.draw(4, before=before)) for before in (0, 4, 8)]
    assert len(set(draws)) == 3


def test_a_checkpoint_with_the_state_of_a_running_generator_is_still_restored() -> None:
    resumed = sampler()
    resumed.restore({"success": {"easy": 0.9}, "variance": {"easy": 0.1}, "chance": [3, [1, 2, 3], None]})
    assert resumed.success["easy"] == 0.9
