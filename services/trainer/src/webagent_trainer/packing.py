"""Packs rows so that what they share is computed once.

Rows of one group have one prompt, and many replies begin alike. A pack lays a set of rows out as one stream of tokens:

    trunk | branch 1 | leaves 1 | branch 2 | leaves 2 | ...

The trunk is the prefix that all contexts share, a branch the rest of one context, and its leaves the tree of the
replies to it, in which replies share their common beginning. A token sees exactly the tokens before it in its own row,
at the position it has there, so log-probabilities and gradients are those of the rows computed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# A branch on a trunk needs an explicit mask, whose size grows with the square of its length.
_LONGEST_MASKED_BRANCH = 2048


class PackableRow(Protocol):
    """What packing needs of a row."""

    @property
    def context(self) -> tuple[int, ...]:
        """Tokens of the prompt."""

    @property
    def reply(self) -> tuple[int, ...]:
        """Tokens to learn; at least one."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of the stream with one attention pattern: `parents` (segments) in full, and of itself what `mask` says."""

    length: int
    parents: tuple[int, ...]
    # [length, length of the parents + length], True where seen. None: no parents and plainly causal.
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows as one stream. Per reply token, rows in order: `sources` (index into `nodes`) predicts `targets`."""

    rows: tuple[int, ...]
    reply_lengths: tuple[int, ...]
    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    segments: tuple[Segment, ...]
    nodes: Tensor  # [N] places in the stream whose next token somebody wants
    sources: Tensor  # [sum of reply_lengths]
    targets: Tensor  # [sum of reply_lengths]


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The tree of the replies to one context. A reply's last token predicts nothing and is not part of it."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]  # -1: the context's last token
    paths: tuple[tuple[int, ...], ...]  # per reply, the node that predicts each of its tokens


@dataclass(frozen=True, slots=True)
class _Branch:
    context: tuple[int, ...]
    rows: tuple[int, ...]
    leaves: _Leaves


def pack_rows(rows: Sequence[PackableRow], *, budget: int) -> list[Pack]:
    """Packs of at most `budget` tokens each; a row that alone has more forms a pack of its own."""
    by_context: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(rows):
        by_context.setdefault(row.context, []).append(index)
    branches = [
        _Branch(context, tuple(chosen), _grow([rows[index].reply for index in chosen]))
        for context, members in sorted(by_context.items())
        for chosen in _within(members, rows, budget - len(context))
    ]
    return [_lay_out(chosen, rows) for chosen in _fill(branches, budget)]


def stream_length(packs: Sequence[Pack]) -> int:
    """Tokens that the packs compute."""
    return sum(len(pack.token_ids) for pack in packs)


def _grow(replies: Sequence[tuple[int, ...]]) -> _Leaves:
    children: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    paths: list[tuple[int, ...]] = []
    for reply in replies:
        node = -1
        path = [node]
        for token in reply[:-1]:
            child = children.get((node, token))
            if child is None:
                child = children[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = child
            path.append(node)
        paths.append(tuple(path))
    return _Leaves(tuple(tokens), tuple(parents), tuple(paths))


def _within(members: Sequence[int], rows: Sequence[PackableRow], room: int) -> Iterator[Sequence[int]]:
    """The rows of one context, as many at a time as their replies' tree has room for; at least one."""
    if len(_grow([rows[index].reply for index in members]).tokens) <= room:
        yield members
        return
    chosen: list[int] = []
    # Neighbours in sorted order share most.
    for index in sorted(members, key=lambda index: rows[index].reply):
        if chosen and len(_grow([rows[each].reply for each in (*chosen, index)]).tokens) > room:
            yield chosen
            chosen = []
        chosen.append(index)
    yield chosen


def _fill(branches: Sequence[_Branch], budget: int) -> Iterator[list[_Branch]]:
    """Neighbours in sorted order share most; take them while they fit."""
    chosen: list[_Branch] = []
    for branch in branches:
        if chosen and _tokens([*chosen, branch]) > budget:
            yield chosen
            chosen = []
        chosen.append(branch)
    if chosen:
        yield chosen


def _tokens(branches: Sequence[_Branch]) -> int:
    trunk = _trunk_length(branches)
    return trunk + sum(len(branch.context) - trunk + len(branch.leaves.tokens) for branch in branches)


def _trunk_length(branches: Sequence[_Branch]) -> int:
    """Length of the prefix to share. The branches are sorted, so the first and the last differ earliest."""
    if len(branches) == 1 or max(len(branch.context) for branch in branches) > _LONGEST_MASKED_BRANCH:
        return 0
    first, last = branches[0].context, branches[-1].context
    differ = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    shared = next(differ, min(len(first), len(last)))
    return min(shared, *(len(branch.context) - 1 for branch in branches))


def _lay_out(branches: Sequence[_Branch], rows: Sequence[PackableRow]) -> Pack:
    trunk = _trunk_length(branches)
    tokens = list(branches[0].context[:trunk])
    positions = list(range(trunk))
    segments = [Segment(trunk, (), None)] if trunk else []
    nodes: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    order: list[int] = []
    for branch in branches:
        below = (0,) if trunk else ()
        stem = branch.context[trunk:]
        segments.append(Segment(len(stem), below, _causal_after(trunk, len(stem)) if trunk else None))
        tokens.extend(stem)
        positions.extend(range(trunk, len(branch.context)))
        leaves = branch.leaves
        first = len(tokens)
        wanted = sorted({node for path in leaves.paths for node in path})
        place = {node: len(nodes) + index for index, node in enumerate(wanted)}
        nodes.extend(first + node for node in wanted)
        if leaves.tokens:
            parents = (*below, len(segments) - 1)
            mask, depths = _tree_mask(leaves.parents, len(branch.context))
            segments.append(Segment(len(leaves.tokens), parents, mask))
            tokens.extend(leaves.tokens)
            positions.extend(len(branch.context) + depth for depth in depths)
        for row, path in zip(branch.rows, leaves.paths, strict=True):
            order.append(row)
            sources.extend(place[node] for node in path)
            targets.extend(rows[row].reply)
    return Pack(
        rows=tuple(order),
        reply_lengths=tuple(len(rows[row].reply) for row in order),
        token_ids=torch.tensor(tokens),
        positions=torch.tensor(positions),
        segments=tuple(segments),
        nodes=torch.tensor(nodes),
        sources=torch.tensor(sources),
        targets=torch.tensor(targets),
    )


def _causal_after(before: int, length: int) -> Tensor:
    """[length, before + length]: all that comes before, then causal."""
    return torch.ones(length, before + length, dtype=torch.bool).tril(before)


def _tree_mask(parents: Sequence[int], before: int) -> tuple[Tensor, list[int]]:
    """[nodes, before + nodes]: all that comes before, then the node and its ancestors. And each node's depth."""
    own = torch.eye(len(parents), dtype=torch.bool)
    depths: list[int] = []
    for node, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        if parent >= 0:
            own[node] |= own[parent]
    return torch.cat([torch.ones(len(parents), before, dtype=torch.bool), own], dim=1), depths
