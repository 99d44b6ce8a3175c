"""What an iteration looked like, in numbers: its groups, and who pulled at the policy.

`pull` of a token is the size of the policy term's derivative by the token's log-probability; summed over rows it tells
whose tokens moved the policy: those of episodes better than their group or worse, of short ones or long ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor

from webagent_trainer.advantage import has_variance
from webagent_trainer.batches import LearningRow
from webagent_trainer.groups import Group
from webagent_trainer.lineage import Lineage
from webagent_trainer.rows import Episode

# Turns of an episode: from, name.
_LENGTHS = ((6, "turns_6_up"), (3, "turns_3_5"), (0, "turns_1_2"))
PULLS = ("pull", "pull_success", *(f"pull_{name}" for _, name in _LENGTHS))


class _Live(Protocol):
    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes learned from."""


def pull_sums(pull: Tensor, rows: Sequence[LearningRow]) -> dict[str, float]:
    """The pull of a pack's tokens, summed under the names of PULLS."""
    sums = dict.fromkeys(PULLS, 0.0)
    parts = torch.split(pull, [len(row.reply) for row in rows])
    # One transfer for all rows: on a GPU each would wait for the device.
    for row, value in zip(rows, torch.stack([part.sum() for part in parts]).tolist(), strict=True):
        sums["pull"] += value
        if row.advantage > 0:
            sums["pull_success"] += value
        sums[f"pull_{_length(row.turns)}"] += value
    return sums


def pull_shares(sums: Mapping[str, float]) -> dict[str, float]:
    """Shares of the whole pull; none where nothing pulled."""
    whole = sums["pull"]
    if not whole:
        return {}
    success = sums["pull_success"] / whole
    lengths = {f"gradient_share_{name}": sums[f"pull_{name}"] / whole for _, name in _LENGTHS}
    return {"gradient_share_success": success, "gradient_share_failure": 1.0 - success, **lengths}


def describe(
    groups: Sequence[Group], live: Sequence[_Live], lineage: Lineage, *, seconds: float, tolerance: float
) -> dict[str, float]:
    """The numbers of an iteration's groups, and of those of them that are learned from."""
    scored = [trajectory for group in groups for trajectory in group.scored.values()]
    episodes = len(scored) + sum(group.lost for group in groups)
    stale = [lineage.staleness(episode.oldest_version) for group in live for episode in group.episodes]
    rewards = [[trajectory.reward for trajectory in group.scored.values()] for group in groups]
    flat = [not has_variance(values, tolerance=tolerance) for values in rewards if len(values) >= 2]
    metrics = {
        "reward_mean": fmean(trajectory.reward for trajectory in scored) if scored else math.nan,
        "episodes": float(episodes),
        "episodes_scored": float(len(scored)),
        "episodes_per_second": episodes / seconds if seconds else math.nan,
        "groups": float(len(groups)),
        "groups_live": float(len(live)),
        "zero_variance_share": fmean(flat) if flat else math.nan,
        "staleness": fmean(stale) if stale else 0.0,
    }
    metrics |= {f"staleness/{age:g}": float(count) for age, count in sorted(Counter(stale).items())}
    if scored:
        lengths = [len(turn.reply_token_ids) for trajectory in scored for turn in trajectory.turns]
        metrics |= {
            "turns_mean": fmean(len(trajectory.turns) for trajectory in scored),
            "turns_max": float(max(len(trajectory.turns) for trajectory in scored)),
            "reply_tokens_mean": fmean(lengths) if lengths else 0.0,
            "reply_tokens_max": float(max(lengths, default=0)),
            "episode_reply_tokens_mean": sum(lengths) / len(scored),
        }
    return metrics


def _length(turns: int) -> str:
    return next(name for least, name in _LENGTHS if turns >= least)
