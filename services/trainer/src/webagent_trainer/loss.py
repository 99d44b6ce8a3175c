"""The M-GRPO loss, as functions of tensors.

    loss = mean over live groups of  sum_ijt  n_ij w ( -min(rho A_i, clip(rho, 1-e_lo, 1+e_hi) A_i) + beta c k )

    rho  = pi / pi_old                   pi_old: the trainer's own value when the batch began
    w    = min(pi_old / pi_sampler, cap) 1 where the sampler's version is the trainer's; no gradient
    k    = exp(q) - q - 1,  q = log pi_ref - log pi
    c    = 1; or, with `kl_corrected`, rho without gradient
    n_ij = 1/(G |tau_i| |a_ij|)          turn-mean
           1/(G sum_j |a_ij|)            token-mean
           1/(G K |a_ij|)                constant, K the turn budget

i runs over the G episodes of a group, j over the turns of an episode, t over the tokens of a turn's reply. All tensors
are flat over reply tokens, shape [N], float32 or float64.

On c: k estimates KL(pi || pi_ref) from tokens that pi itself drew. From the second step on a batch they are pi_old's,
for whom E_old[rho k] = E_pi[k] and E_old[k] is something else; and the derivative of k by log pi, 1 - pi_ref / pi, has
no bound where pi has fallen far below pi_ref, while that of the corrected term, (pi - pi_ref) / pi_old, has one. At
rho = 1, in every first step, both are the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Normalizer = Literal["turn-mean", "token-mean", "constant"]


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """What the loss needs of each token besides the policy's log-probability."""

    weights: Tensor  # n_ij / live groups
    advantages: Tensor
    old: Tensor  # log pi_old
    sampler_weights: Tensor  # w
    reference: Tensor | None  # log pi_ref; None: no KL term


def turn_weights(
    turn_lengths: Sequence[int], *, group_size: int, turn_budget: int, normalizer: Normalizer
) -> list[float]:
    """n_ij of each turn of one episode, from the lengths of its replies; a turn without tokens weighs nothing."""
    if normalizer == "token-mean":
        return [1.0 / (group_size * sum(turn_lengths)) if length else 0.0 for length in turn_lengths]
    turns = len(turn_lengths) if normalizer == "turn-mean" else turn_budget
    return [1.0 / (group_size * turns * length) if length else 0.0 for length in turn_lengths]


def sampler_weights(old: Tensor, sampler: Tensor, stale: Tensor, *, cap: float) -> Tensor:
    """w of each token; `stale` is True where the sampler's version is not the trainer's."""
    ratio = torch.exp(old - sampler).clamp(max=cap)
    return torch.where(stale, ratio, torch.ones_like(ratio)).detach()


def kl_estimate(logprobs: Tensor, reference: Tensor) -> Tensor:
    """k of each token: never negative, in expectation KL(pi || pi_ref)."""
    q = reference - logprobs
    return torch.exp(q) - q - 1.0


def grpo_loss(
    logprobs: Tensor,
    tokens: TokenLoss,
    *,
    clip_low: float,
    clip_high: float,
    kl_coefficient: float,
    kl_corrected: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """The loss summed over the given tokens, and sums for the report (divide them by `tokens`)."""
    ratio = torch.exp(logprobs - tokens.old)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    per_token = -torch.minimum(ratio * tokens.advantages, clipped * tokens.advantages)
    kl = torch.zeros_like(logprobs) if tokens.reference is None else kl_estimate(logprobs, tokens.reference)
    if kl_corrected:
        kl = ratio.detach() * kl
    loss = (tokens.weights * tokens.sampler_weights * (per_token + kl_coefficient * kl)).sum()
    with torch.no_grad():
        report = {
            "tokens": float(logprobs.numel()),
            "kl": kl.sum().item(),
            "clipped": ((ratio - clipped).abs() > 0).sum().item(),
            "surprise": -logprobs.sum().item(),
        }
    return loss, report


def policy_pull(logprobs: Tensor, tokens: TokenLoss, *, clip_low: float, clip_high: float) -> Tensor:
    """|d loss / d log pi| of each token by the policy term alone: n_ij w rho |A|, and 0 where the clip holds it."""
    with torch.no_grad():
        ratio = torch.exp(logprobs - tokens.old)
        clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
        free = ratio * tokens.advantages <= clipped * tokens.advantages
        return tokens.weights * tokens.sampler_weights * ratio * tokens.advantages.abs() * free


def cloning_loss(logprobs: Tensor, weights: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Weighted negative log-likelihood summed over the given tokens."""
    loss = -(weights * logprobs).sum()
    return loss, {"tokens": float(logprobs.numel()), "surprise": -logprobs.detach().sum().item()}


def kl_fit_loss(
    logprobs: Tensor,
    reference: Tensor,
    lengths: Sequence[int],
    *,
    advantages: Sequence[float],
    weights: Sequence[float],
    strength: float,
) -> tuple[Tensor, dict[str, float]]:
    """Sum over turns of weight * huber(beta mean_t(log pi - log pi_ref) - A): where beta log(pi / pi_ref) equals A,
    pi is the policy of most reward under a KL penalty of strength beta. `lengths`: reply tokens of each turn.
    """
    gaps = torch.stack([part.mean() for part in torch.split(logprobs - reference, list(lengths))])
    wanted = torch.tensor(advantages, dtype=gaps.dtype, device=gaps.device)
    scales = torch.tensor(weights, dtype=gaps.dtype, device=gaps.device)
    errors = torch.nn.functional.huber_loss(strength * gaps, wanted, reduction="none")
    report = {"tokens": float(logprobs.numel()), "surprise": -logprobs.detach().sum().item()}
    return (scales * errors).sum(), report
