"""Calls in flight that can be dropped all at once, for backends that wait for somebody else."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from webagent_inference.backend import Interrupted

T = TypeVar("T")


class InFlight:
    """The calls of one backend."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; Interrupted when `interrupt` dropped it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._tasks.discard(task)
        if task.cancelled():
            raise Interrupted
        return task.result()

    async def interrupt(self) -> None:
        """Drops what is in flight; returns once nothing is."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks))
            await asyncio.sleep(0)
