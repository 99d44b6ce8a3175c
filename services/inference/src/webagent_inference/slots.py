"""The engine's slots, shared fairly between the kinds of traffic.

While only one kind asks it may have every slot. While several wait, a slot that comes free goes to the kind that holds
fewest, and of those to the one that was not served last: an evaluation is not kept waiting by a long training queue,
nor training by an evaluation. Within a kind, first come, first served. A waiter that is cancelled leaves its place to
the next.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Purpose(enum.Enum):
    """What a request is for."""

    TRAINING = "training"
    EVALUATION = "evaluation"


class Slots:
    """A number of slots."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._held = dict.fromkeys(Purpose, 0)
        self._last: Purpose | None = None
        self._waiting: dict[Purpose, deque[asyncio.Future[None]]] = {purpose: deque() for purpose in Purpose}

    @asynccontextmanager
    async def taken(self, purpose: Purpose) -> AsyncIterator[None]:
        """Waits for a slot and holds it while the block runs."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[purpose].append(place)
        self._hand_out()
        try:
            await place
            yield
        finally:
            if place.done() and not place.cancelled():
                self._held[purpose] -= 1
                self._free += 1
            elif place in self._waiting[purpose]:
                self._waiting[purpose].remove(place)
            self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (purpose := self._next()) is not None:
            place = self._waiting[purpose].popleft()
            if place.done():
                # Cancelled, and its owner has not run yet to leave the queue.
                continue
            self._free -= 1
            self._held[purpose] += 1
            self._last = purpose
            place.set_result(None)

    def _next(self) -> Purpose | None:
        asking = [purpose for purpose in Purpose if self._waiting[purpose]]
        return min(asking, key=lambda purpose: (self._held[purpose], purpose is self._last), default=None)
