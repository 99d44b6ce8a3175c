"""What the learner is handed: rows with what their loss needs, cut into packs and shared out over the ranks.

All of it is decided on rank 0, so that every rank runs the same number of backward passes: a rank that would have
fewer packs repeats one with weight zero.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from webagent_trainer.packing import Pack, pack_rows


@dataclass(frozen=True, slots=True)
class LearningRow:
    """A row and, for each of its reply tokens, what its loss needs."""

    context: tuple[int, ...]
    reply: tuple[int, ...]
    weight: float
    advantage: float = 0.0
    # Of the whole episode; for the report.
    turns: int = 0
    # Per reply token; empty where the loss needs none.
    sampler: tuple[float, ...] = ()
    stale: tuple[bool, ...] = ()
    old: tuple[float, ...] = ()
    reference: tuple[float, ...] = field(default=())


def share_out(rows: Sequence[LearningRow], *, budget: int, ranks: int) -> list[list[tuple[Pack, list[LearningRow]]]]:
    """For each rank its packs, each with the rows in it in the pack's order; equally many for all."""
    packs = [(pack, [rows[index] for index in pack.rows]) for pack in pack_rows(rows, budget=budget)]
    # Longest first, dealt back and forth, so that no rank gets all the long ones.
    packs.sort(key=lambda entry: len(entry[0].token_ids), reverse=True)
    shares: list[list[tuple[Pack, list[LearningRow]]]] = [[] for _ in range(ranks)]
    for index, entry in enumerate(packs):
        turn, place = divmod(index, ranks)
        shares[place if turn % 2 == 0 else ranks - 1 - place].append(entry)
    rounds = len(shares[0]) if len(packs) % ranks == 0 else -(-len(packs) // ranks)
    filler_pack, filler_rows = packs[-1]
    filler = (filler_pack, [replace(row, weight=0.0) for row in filler_rows])
    for share in shares:
        share.extend([filler] * (rounds - len(share)))
    return shares


def token_weights(rows: Sequence[LearningRow]) -> Tensor:
    """Each row's weight, once per reply token."""
    return _spread([row.weight for row in rows], rows)


def token_advantages(rows: Sequence[LearningRow]) -> Tensor:
    """Each row's advantage, once per reply token."""
    return _spread([row.advantage for row in rows], rows)


def per_token(values: Sequence[Sequence[float]]) -> Tensor:
    """Values that the rows carry per reply token, as one flat tensor."""
    return torch.tensor([value for row in values for value in row], dtype=torch.float32)


def _spread(values: Sequence[float], rows: Sequence[LearningRow]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor([len(row.reply) for row in rows]))


def minibatches(groups: Sequence[int], rows: int | None, chance: random.Random) -> Iterator[list[int]]:
    """Groups in random order, as many whole ones at a time as it takes to reach `rows`; `groups` gives their sizes."""
    order = list(range(len(groups)))
    chance.shuffle(order)
    chosen: list[int] = []
    size = 0
    for index in order:
        chosen.append(index)
        size += groups[index]
        if rows is not None and size >= rows:
            yield chosen
            chosen, size = [], 0
    if chosen:
        yield chosen
