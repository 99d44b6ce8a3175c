"""The pages of recorded turns, wherever they are kept."""

from __future__ import annotations

from typing import Protocol

from webagent.trajectory.v1.trajectory_pb2 import PayloadRef, Turn


class Pages(Protocol):
    """Where long pages are kept."""

    async def get(self, ref: PayloadRef) -> bytes:
        """The payload."""


async def page_text(turn: Turn, pages: Pages) -> str:
    """What the policy saw at this turn; empty if it was not kept."""
    if turn.observation_text or not turn.HasField("observation_ref"):
        return turn.observation_text
    return (await pages.get(turn.observation_ref)).decode()
