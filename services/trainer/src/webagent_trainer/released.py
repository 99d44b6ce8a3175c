"""The context that the paper's released code trains on, for comparison.

That code keeps one sequence per episode, out of which every page but the last is cut: a reply is learned after the
stand-in of the page that it answered, not after the page itself. Under context compression this sequence is at hand:
it is the last turn's prompt, which holds all earlier replies as they were sampled, and the last reply.

The released code also hides stand-ins and the last page from attention; here they are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webagent_trainer.rows import Episode, RefusedError

# Of the prompt's end, which opens the assistant's turn: a reply quoted elsewhere does not follow it.
_OPENING = 3


def with_released_contexts(episode: Episode) -> Episode:
    """The same replies, each after what precedes it in the last turn's prompt."""
    *earlier, last = episode.rows
    rows = []
    cursor = 0
    for row in earlier:
        needle = (*row.context[-_OPENING:], *row.reply)
        found = _find(last.context, needle, cursor)
        if found is None:
            raise RefusedError("REPLY_NOT_IN_PROMPT", "the last prompt lacks an earlier reply as it was sampled")
        cursor = found + len(needle)
        rows.append(replace(row, context=last.context[: cursor - len(row.reply)]))
    return replace(episode, rows=(*rows, last))


def _find(tokens: Sequence[int], needle: Sequence[int], start: int) -> int | None:
    size = len(needle)
    places = range(start, len(tokens) - size + 1)
    return next((place for place in places if tuple(tokens[place : place + size]) == tuple(needle)), None)
