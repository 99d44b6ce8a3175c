"""Turn by turn advantages of the methods that learn values. One episode: rewards only at its end, r; turns 1 to H.

`values` holds V(s_1) .. V(s_H); after the last turn the value is 0.

    awr      A_j = r - V(s_j)
    digirl   A_j = g_j + (1 - g_j) (V(s_j+1) + r_j - V(s_j)),  g_j = lambda^(H-j) r,  r_j = r at j = H, else 0
             an episode takes part if r - U(s_1) > 0, U learned from first turns: it beat what its task promised
    webrl    A_j = V(s_j+1) - V(s_j) - cost + r_j + gamma^(H-j) r, clamped to [-1, 1]; turns with A_j > 0 take part,
             each with the same advantage of 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def awr_weights(reward: float, values: Sequence[float], *, temperature: float, cap: float) -> list[float]:
    """min(exp(A_j / beta), cap) of each turn."""
    return [min(math.exp(min((reward - value) / temperature, math.log(cap))), cap) for value in values]


def digirl_advantages(reward: float, values: Sequence[float], *, decay: float) -> list[float]:
    """A_j of each turn: from the outcome itself near the end, from the values' step far from it."""
    found = []
    for left, following, value, own in _walk(reward, values):
        outcome = decay**left * reward
        found.append(outcome + (1.0 - outcome) * (following + own - value))
    return found


def webrl_advantages(reward: float, values: Sequence[float], *, discount: float, cost: float) -> list[float]:
    """A_j of each turn, clamped."""
    return [
        min(max(following - value - cost + own + discount**left * reward, -1.0), 1.0)
        for left, following, value, own in _walk(reward, values)
    ]


def _walk(reward: float, values: Sequence[float]) -> list[tuple[int, float, float, float]]:
    """For each turn: turns left after it, V(s_j+1), V(s_j), r_j."""
    last = len(values) - 1
    return [
        (last - index, values[index + 1] if index < last else 0.0, value, reward if index == last else 0.0)
        for index, value in enumerate(values)
    ]
