"""A version's proof: what the policy says greedily after a prompt, and how likely it finds it.

A replica in other arithmetic may decide a near tie differently, so a continuation ends where the policy is no longer
sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache


@dataclass(frozen=True, slots=True)
class Continuation:
    """A prompt, its greedy continuation, and the log-probability of each of its tokens."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def continue_greedily(model: Any, prompt: Sequence[int], *, length: int, margin: float) -> Continuation:
    """Up to `length` tokens, each ahead of its best rival by `margin` (log-probability); at least one."""
    ends = model.config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    device = model.lm_head.weight.device
    cache = DynamicCache(config=model.config)
    tokens: list[int] = []
    logprobs: list[float] = []
    fresh = list(prompt)
    while len(tokens) < length and not ends.intersection(tokens):
        hidden = model.model(
            torch.tensor([fresh], device=device), past_key_values=cache, use_cache=True
        ).last_hidden_state
        best = model.lm_head(hidden[0, -1]).float().log_softmax(-1).topk(2)
        value, rival = best.values.tolist()
        if tokens and value - rival < margin:
            break
        fresh = [int(best.indices[0])]
        tokens.append(fresh[0])
        logprobs.append(value)
    return Continuation(tuple(prompt), tuple(tokens), tuple(logprobs))
