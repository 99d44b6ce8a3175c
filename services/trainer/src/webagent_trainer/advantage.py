"""Group-relative advantages.

Over the G >= 2 rewards r_i of one group:

    A_i = (r_i - mean r) / (s + 1e-4)        s: unbiased standard deviation

One advantage holds for all turns and tokens of its episode.
"""

from collections.abc import Sequence
from statistics import fmean, stdev

EPSILON = 1e-4


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """The advantage of each episode of a group."""
    if len(rewards) < 2:
        raise ValueError(f"a group needs at least 2 rewards, not {len(rewards)}")
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def has_variance(rewards: Sequence[float], *, tolerance: float) -> bool:
    """Whether a group teaches anything: it has two rewards that differ by more than `tolerance`."""
    return len(rewards) >= 2 and max(rewards) - min(rewards) > tolerance
