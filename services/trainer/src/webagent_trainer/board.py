"""The state of one run, shared by the thread that trains and the event loop that serves.

    PENDING -> RUNNING <-> PAUSED -> SUCCEEDED | FAILED | STOPPED

The training thread reports and asks at its stop points whether it may go on; the event loop reads, watches and asks for
pauses and ends. `bell` is the one condition variable that the training thread waits on: whoever has news rings it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum


class State(Enum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self in {State.SUCCEEDED, State.FAILED, State.STOPPED}


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment."""

    run_id: str
    state: State = State.PENDING
    phase: str = ""
    iteration: int = 0
    iterations: int = 0
    version: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""
    updated_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Board:
    """One run's status and what has been asked of it."""

    def __init__(self, run_id: str, *, hold: bool = False) -> None:
        self.bell = threading.Condition()
        self._status = Status(run_id)
        # `hold` asks for the pause between phases, before the run gets there or anybody can resume it.
        self._hold = hold
        self._pause = False
        self._stop = False
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def status(self) -> Status:
        """The newest status."""
        return self._status

    def update(self, **changes: object) -> None:
        """Reports news. A run that is over stays as it ended."""
        with self.bell:
            if self._status.state.over:
                return
            self._status = replace(self._status, updated_at=datetime.now(UTC), **changes)  # type: ignore[arg-type]
            self.bell.notify_all()
            for loop, event in self._watchers:
                loop.call_soon_threadsafe(event.set)

    def ask_pause(self) -> None:
        """Has the run pause at its next stop point."""
        with self.bell:
            self._pause = True
            self.bell.notify_all()

    def ask_resume(self) -> None:
        """Ends a pause, or takes the wish for one back; without one, the pause between phases."""
        with self.bell:
            if self._pause:
                self._pause = False
            else:
                self._hold = False
            self.bell.notify_all()

    def ask_stop(self) -> None:
        """Has the run end at its next stop point."""
        with self.bell:
            self._stop = True
            self.bell.notify_all()

    @property
    def stop_asked(self) -> bool:
        """Whether the run is to end."""
        return self._stop

    @property
    def pause_asked(self) -> bool:
        """Whether the run is to pause."""
        return self._pause

    @property
    def hold_asked(self) -> bool:
        """Whether the run is to pause between its phases."""
        return self._hold

    def wait_while_paused(self) -> None:
        """Training thread: PAUSED until resumed or to be stopped."""
        self._wait(lambda: self._pause)

    def wait_while_held(self) -> None:
        """Training thread, between phases: PAUSED until resumed or to be stopped."""
        self._wait(lambda: self._hold or self._pause)

    def _wait(self, held: Callable[[], bool]) -> None:
        if not held() or self._stop:
            return
        self.update(state=State.PAUSED)
        with self.bell:
            self.bell.wait_for(lambda: self._stop or not held())
        self.update(state=State.RUNNING)

    async def watch(self) -> AsyncIterator[Status]:
        """The status at once, then at each change, until the run is over."""
        event = asyncio.Event()
        watcher = (asyncio.get_running_loop(), event)
        with self.bell:
            self._watchers.add(watcher)
        try:
            while True:
                event.clear()
                status = self._status
                yield status
                if status.state.over:
                    return
                await event.wait()
        finally:
            with self.bell:
                self._watchers.discard(watcher)
