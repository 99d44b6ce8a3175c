"""Benchmark statistics: success rates, their intervals, repeated attempts, paired differences.

Pure functions of judged episodes. INVALID episodes are counted but enter no rate, no estimate and no pair. A task that
has no SCORED episode is missing, and a summary with missing tasks is not complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, sqrt
from statistics import fmean, stdev

Z95 = 1.959963984540054
"""The normal distribution's quantile at 0.975."""
MULTI_SITE = "multi-site"
PAPER_SUITE = "webarena-lite"
PAPER_TASKS: Mapping[str, int] = {
    "gitlab": 30,
    "map": 26,
    MULTI_SITE: 10,
    "reddit": 19,
    "shopping": 45,
    "shopping_admin": 35,
}
"""How many of the paper's 165 tasks each site has; those that span sites count in the average alone."""


class Outcome(Enum):
    """What an evaluation came to."""

    SUCCESS = "success"
    FAILURE = "failure"
    INVALID = "invalid"


@dataclass(frozen=True)
class Cell:
    """What attempts are repeated at: a task and a seed."""

    suite: str
    task_id: str
    seed: int


@dataclass(frozen=True)
class Episode:
    """One judged episode; `site` names its row of the table."""

    cell: Cell
    attempt: int
    site: str
    outcome: Outcome


@dataclass(frozen=True)
class Rate:
    """A success rate; `rate` and `interval` are None when nothing was scored."""

    successes: int
    scored: int
    invalid: int

    @property
    def rate(self) -> float | None:
        """Successes over scored episodes."""
        return self.successes / self.scored if self.scored else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval."""
        return wilson(self.successes, self.scored) if self.scored else None


@dataclass(frozen=True)
class Difference:
    """Mean of run minus baseline over pairs, with its 95 % interval; `better` pairs only the run solved."""

    pairs: int
    mean: float
    low: float
    high: float
    better: int = 0
    worse: int = 0

    @property
    def p_value(self) -> float:
        """The two-sided exact McNemar test."""
        decided = self.better + self.worse
        splits: int = 2**decided
        uneven = sum(comb(decided, count) for count in range(min(self.better, self.worse) + 1))
        return min(1.0, 2 * uneven / splits)


@dataclass(frozen=True)
class Attempts:
    """Estimates over repeated attempts; None when no task and seed could be estimated."""

    pass_at_k: float | None
    mean_at_k: float | None


@dataclass(frozen=True)
class SiteSummary:
    """One row of the table."""

    site: str
    rate: Rate
    tasks: int
    missing: int
    attempts: Attempts


@dataclass(frozen=True)
class Summary:
    """The whole table."""

    overall: Rate
    sites: tuple[SiteSummary, ...]
    attempts: Attempts
    difference: Difference | None

    @property
    def missing(self) -> int:
        """Tasks that have not been scored."""
        return sum(site.missing for site in self.sites)


class ResultsError(ValueError):
    """The given results cannot be summarized."""


def wilson(successes: int, scored: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion; `scored` is at least 1."""
    share = successes / scored
    scale = 1 + Z95**2 / scored
    centre = (share + Z95**2 / (2 * scored)) / scale
    half = Z95 * sqrt(share * (1 - share) / scored + Z95**2 / (4 * scored**2)) / scale
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == scored else min(1.0, centre + half)
    return low, high


def rate_of(episodes: Iterable[Episode]) -> Rate:
    """The success rate of some episodes."""
    outcomes = [episode.outcome for episode in episodes]
    successes = outcomes.count(Outcome.SUCCESS)
    return Rate(successes, successes + outcomes.count(Outcome.FAILURE), outcomes.count(Outcome.INVALID))


def summarize(
    results: Sequence[Episode],
    baseline: Sequence[Episode] = (),
    *,
    k: int = 0,
    expected: Mapping[str, int] | None = None,
) -> Summary:
    """The table of some results; without expected tasks, the paper's are expected of the paper's suite."""
    check_distinct(results)
    check_distinct(baseline)
    if not expected and results and all(episode.cell.suite == PAPER_SUITE for episode in results):
        expected = PAPER_TASKS
    rows = _by_site(results, expected or {})
    return Summary(
        overall=rate_of(results),
        sites=tuple(_row(site, rows[site], (expected or {}).get(site), k) for site in sorted(rows)),
        attempts=over_attempts(results, k) if k else Attempts(None, None),
        difference=paired_difference(results, baseline) if baseline else None,
    )


def _by_site(results: Iterable[Episode], expected: Mapping[str, int]) -> dict[str, list[Episode]]:
    """Results by their row: what belongs to none of the expected sites spans several, where such tasks are expected."""
    rows: defaultdict[str, list[Episode]] = defaultdict(list, {site: [] for site in expected})
    for episode in results:
        elsewhere = MULTI_SITE in expected and episode.site not in expected
        rows[MULTI_SITE if elsewhere else episode.site].append(episode)
    return rows


def _row(site: str, episodes: list[Episode], expected: int | None, k: int) -> SiteSummary:
    played = {(episode.cell.suite, episode.cell.task_id) for episode in episodes}
    scored = {
        (episode.cell.suite, episode.cell.task_id) for episode in episodes if episode.outcome is not Outcome.INVALID
    }
    tasks = len(played) if expected is None else expected
    attempts = over_attempts(episodes, k) if k and episodes else Attempts(None, None)
    return SiteSummary(site, rate_of(episodes), tasks, max(0, tasks - len(scored)), attempts)


def pass_at_k(successes: int, scored: int, k: int) -> float:
    """Chance that k of the scored attempts, drawn without replacement, hold a success; `scored` is at least k."""
    return 1 - comb(scored - successes, k) / comb(scored, k)


def over_attempts(episodes: Sequence[Episode], k: int) -> Attempts:
    """pass@k and mean@k over tasks and seeds; those with fewer than k scored attempts left do not enter pass@k."""
    cells: defaultdict[Cell, list[Episode]] = defaultdict(list)
    for episode in episodes:
        cells[episode.cell].append(episode)
    fewest = min((len(attempts) for attempts in cells.values()), default=0)
    if k > fewest:
        raise ResultsError(f"k is {k}, but some task and seed has {fewest} attempts")
    rates = [rate for rate in map(rate_of, cells.values()) if rate.scored]
    passes = [pass_at_k(rate.successes, rate.scored, k) for rate in rates if rate.scored >= k]
    means = [rate.successes / rate.scored for rate in rates]
    return Attempts(fmean(passes) if passes else None, fmean(means) if means else None)


def paired_difference(run: Iterable[Episode], baseline: Iterable[Episode]) -> Difference:
    """Compares two runs on what both have scored; with fewer than two pairs the interval says nothing: [-1, 1]."""
    ours, theirs = _scores(run), _scores(baseline)
    differences = [ours[key] - theirs[key] for key in ours.keys() & theirs.keys()]
    pairs, better, worse = len(differences), differences.count(1), differences.count(-1)
    if pairs < 2:
        return Difference(pairs, float(sum(differences)), -1.0, 1.0, better, worse)
    mean, half = fmean(differences), Z95 * stdev(differences) / sqrt(pairs)
    return Difference(pairs, mean, max(-1.0, mean - half), min(1.0, mean + half), better, worse)


def check_distinct(episodes: Iterable[Episode]) -> None:
    """Refuses results that name one attempt twice."""
    seen: set[tuple[Cell, int]] = set()
    for episode in episodes:
        key = (episode.cell, episode.attempt)
        if key in seen:
            cell = episode.cell
            name = f"{cell.suite}/{cell.task_id}, seed {cell.seed}, attempt {episode.attempt}"
            raise ResultsError(f"the results hold {name} twice")
        seen.add(key)


def _scores(episodes: Iterable[Episode]) -> Mapping[tuple[Cell, int], int]:
    return {
        (episode.cell, episode.attempt): int(episode.outcome is Outcome.SUCCESS)
        for episode in episodes
        if episode.outcome is not Outcome.INVALID
    }
