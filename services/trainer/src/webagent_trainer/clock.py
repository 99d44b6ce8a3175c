"""Simulated time for threads and tasks that really run."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable


class Clock:
    """Time for parties that are either at work or asleep; it moves only when none is at work and `still` agrees."""

    def __init__(self) -> None:
        self.now = 0.0
        self.still: Callable[[], bool] = lambda: True
        self._lock = threading.RLock()
        self._working = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, Callable[[], object]]] = []

    def begin(self) -> None:
        """One party more is at work."""
        with self._lock:
            self._working += 1

    def end(self) -> None:
        """One party fewer is at work."""
        with self._lock:
            self._working -= 1
            self.check()

    def check(self) -> None:
        """Wakes the next sleeper if nobody else can do anything."""
        with self._lock:
            if self._working == 0 and self._sleepers and self.still():
                self.now, _, wake = heapq.heappop(self._sleepers)
                self._working += 1
                wake()

    def sleep(self, seconds: float) -> None:
        """A working thread sleeps."""
        over = threading.Event()
        self._lie_down(seconds, over.set)
        over.wait()

    async def sleep_async(self, seconds: float) -> None:
        """A working task sleeps."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        self._lie_down(seconds, lambda: loop.call_soon_threadsafe(over.set))
        await over.wait()

    def _lie_down(self, seconds: float, wake: Callable[[], object]) -> None:
        with self._lock:
            heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), wake))
            self.end()
