"""The statistics hold known values and the properties that make them statistics."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent_evaluator.statistics import (
    Cell,
    Episode,
    Outcome,
    ResultsError,
    check_distinct,
    over_attempts,
    paired_difference,
    pass_at_k,
    rate_of,
    summarize,
    wilson,
)

S, F, I = Outcome.SUCCESS, Outcome.FAILURE, Outcome.INVALID  # noqa: E741


def episodes(outcomes: list[Outcome], *, task_id: str = "click-button", seed: int = 0) -> list[Episode]:
    return [Episode(Cell("miniwob", task_id, seed), n, task_id, outcome) for n, outcome in enumerate(outcomes)]


# Newcombe (1998), Statistics in Medicine 17, table I: method 3 (Wilson score without continuity correction).
@pytest.mark.parametrize(
    ("successes", "scored", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals_are_the_published_ones(successes: int, scored: int, low: float, high: float) -> None:
    assert wilson(successes, scored) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_lies_in_the_unit_interval_and_holds_the_rate(counts: tuple[int, int]) -> None:
    low, high = wilson(*counts)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1
    assert low < high


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_mirrors_when_success_and_failure_are_swapped(counts: tuple[int, int]) -> None:
    successes, scored = counts
    low, high = wilson(successes, scored)
    assert wilson(scored - successes, scored) == pytest.approx((1 - high, 1 - low))


def test_invalid_episodes_are_counted_but_enter_no_rate() -> None:
    rate = rate_of(episodes([S, F, I, S, I]))
    assert (rate.successes, rate.scored, rate.invalid) == (2, 3, 2)
    assert rate.rate == pytest.approx(2 / 3)


def test_nothing_scored_has_no_rate_and_no_interval() -> None:
    rate = rate_of(episodes([I, I]))
    assert (rate.rate, rate.interval) == (None, None)


def test_sites_come_sorted_and_add_up_to_the_whole() -> None:
    summary = summarize(episodes([S, F], task_id="use-slider") + episodes([S, I], task_id="click-tab"), k=2)
    assert [row.site for row in summary.sites] == ["click-tab", "use-slider"]
    assert sum(row.rate.successes for row in summary.sites) == summary.overall.successes
    assert [row.attempts.mean_at_k for row in summary.sites] == [1.0, 0.5]


def lite(site: str, outcomes: list[Outcome]) -> list[Episode]:
    return [Episode(Cell("webarena-lite", f"{site}-{n}", 0), 0, site, outcome) for n, outcome in enumerate(outcomes)]


def test_the_paper_s_table_is_complete_once_every_one_of_its_tasks_is_scored() -> None:
    counts = {"shopping": 45, "shopping_admin": 35, "gitlab": 30, "map": 26, "reddit": 19, "wikipedia,map": 10}
    whole = [episode for site, count in counts.items() for episode in lite(site, [S] * count)]
    summary = summarize(whole)
    assert (summary.missing, summary.overall.scored) == (0, 165)
    assert {row.site: row.tasks for row in summary.sites}["multi-site"] == 10
    missing = {row.site: row.missing for row in summarize(lite("reddit", [S] * 18 + [I])).sites}
    assert missing == {"shopping": 45, "shopping_admin": 35, "gitlab": 30, "map": 26, "reddit": 1, "multi-site": 10}


def test_a_task_is_missing_until_an_attempt_at_it_is_scored() -> None:
    assert summarize(episodes([I, I])).missing == 1
    assert summarize(episodes([I, F])).missing == 0
    assert summarize(episodes([S]), expected={"click-button": 3, "other": 2}).missing == 4


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_success(attempts: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(attempts)))
    draws = [any(draw) for draw in combinations(attempts, k)]
    assert pass_at_k(sum(attempts), len(attempts), k) == pytest.approx(fmean(draws))


def test_attempts_are_averaged_over_tasks_and_seeds() -> None:
    results = episodes([S, F, F, F], seed=1) + episodes([S, S, F, F], seed=2)
    attempts = over_attempts(results, 2)
    assert attempts.pass_at_k == pytest.approx((1 / 2 + 5 / 6) / 2)
    assert attempts.mean_at_k == pytest.approx((1 / 4 + 2 / 4) / 2)


def test_a_seed_with_too_few_scored_attempts_leaves_pass_at_k_alone() -> None:
    attempts = over_attempts(episodes([S, I, I], seed=1) + episodes([F, F, F], seed=2), 2)
    assert (attempts.pass_at_k, attempts.mean_at_k) == (0.0, 0.5)


def test_k_above_the_attempts_is_refused() -> None:
    with pytest.raises(ResultsError, match="k is 3, but some task and seed has 2 attempts"):
        over_attempts(episodes([S, F]), 3)


def test_the_paired_difference_is_the_textbook_one() -> None:
    difference = paired_difference(episodes([S, S, S, F]), episodes([F, F, S, F]))
    assert (difference.pairs, difference.mean) == (4, 0.5)
    # Standard deviation of (1, 1, 0, 0) is 0.57735; the half width 1.95996 * 0.57735 / 2.
    assert (difference.low, difference.high) == pytest.approx((-0.06579, 1.0), abs=1e-5)


def test_the_exact_test_of_pairs_is_mcnemar_s() -> None:
    difference = paired_difference(episodes([S] * 9 + [F, S]), episodes([F] * 9 + [S, S]))
    assert (difference.better, difference.worse) == (9, 1)
    assert difference.p_value == pytest.approx(2 * 11 / 1024)
    assert paired_difference(episodes([S]), episodes([S])).p_value == 1.0


def test_pairs_need_both_sides_scored() -> None:
    difference = paired_difference(episodes([S, I, S, F]), episodes([I, F, F]))
    assert (difference.pairs, difference.mean) == (1, 1.0)
    assert (difference.low, difference.high) == (-1.0, 1.0)


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.sampled_from(Outcome)), max_size=60))
def test_a_paired_difference_turns_its_sign_when_the_runs_are_swapped(pairs: list[tuple[Outcome, Outcome]]) -> None:
    run, baseline = episodes([ours for ours, _ in pairs]), episodes([theirs for _, theirs in pairs])
    there, back = paired_difference(run, baseline), paired_difference(baseline, run)
    assert (back.pairs, back.mean, back.low, back.high) == pytest.approx(
        (there.pairs, -there.mean, -there.high, -there.low)
    )
    assert -1 <= there.low <= there.mean <= there.high <= 1


def test_the_same_attempt_twice_is_refused() -> None:
    with pytest.raises(ResultsError, match="miniwob/click-button, seed 0, attempt 0 twice"):
        check_distinct(episodes([S]) + episodes([F]))
