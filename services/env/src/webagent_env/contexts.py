"""Browser contexts: a fresh one for each session, or a wiped one that an earlier session left.

Starting a context with its page costs a renderer process or two, which is most of what opening a session costs. Where
a suite's pages are the service's own (`Suite.reuses_contexts`), a context whose session ended in order, with one tab
and nothing but the suite's own pages in it, is wiped (cookies, storage and caches of the origin, window name, pointer)
and serves the next session of that suite and viewport. Any doubt closes it. At every moment a context belongs to one
session at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog
from playwright.async_api import Error

from webagent_env.browser import Browser
from webagent_env.context import SessionContext
from webagent_env.page import PageGoneError, page_script
from webagent_env.tasks import Suite

log = structlog.get_logger()

_MOST_USES = 200

_Key = tuple[str, tuple[int, int]]


@dataclass(slots=True)
class _Idle:
    context: SessionContext
    key: _Key
    since: float


class Contexts:
    """All contexts that no session holds, and the way to get more."""

    def __init__(self, browser: Browser, *, accept_dialogs: bool, close_timeout: float, idle_seconds: float) -> None:
        self._browser = browser
        self._accept_dialogs = accept_dialogs
        self._close_timeout = close_timeout
        self._idle_seconds = idle_seconds
        self._idle: list[_Idle] = []

    async def take(self, suite: Suite, viewport: tuple[int, int]) -> SessionContext:
        """A context with one blank tab."""
        key = (suite.name, viewport)
        for idle in reversed(self._idle):
            if idle.key == key and idle.context.generation == self._browser.generation and not idle.context.gone():
                self._idle.remove(idle)
                return idle.context
        return await self._open(suite, viewport)

    async def give_back(self, context: SessionContext, suite: Suite, viewport: tuple[int, int], *, sound: bool) -> None:
        """Wipes a context for the next session, or closes it; `sound` says that nothing went wrong in it."""
        if sound and suite.reuses_contexts and context.uses < _MOST_USES and await self._wipe(context, suite):
            self._idle.append(_Idle(context, (suite.name, viewport), time.monotonic()))
            return
        await self._bounded(context.close(), "context_did_not_close")

    async def close_idle(self, *, older_than: float | None = None) -> None:
        """Closes the contexts that have been idle since before that moment; without one, all."""
        old = [idle for idle in self._idle if older_than is None or idle.since <= older_than]
        self._idle = [idle for idle in self._idle if idle not in old]
        await asyncio.gather(*(self._bounded(idle.context.close(), "context_did_not_close") for idle in old))

    def next_expiry(self) -> float | None:
        """When the oldest idle context is to be closed, on the monotonic clock."""
        return min((idle.since + self._idle_seconds for idle in self._idle), default=None)

    async def expire(self) -> None:
        """Closes what has been idle for too long."""
        await self.close_idle(older_than=time.monotonic() - self._idle_seconds)

    async def _open(self, suite: Suite, viewport: tuple[int, int]) -> SessionContext:
        width, height = viewport
        raw, generation = await self._browser.context(
            viewport={"width": width, "height": height},
            locale="en-US",
            timezone_id="UTC",
            service_workers="block",
            accept_downloads=False,
        )
        context = SessionContext(raw, generation, accept_dialogs=self._accept_dialogs)
        try:
            await raw.add_init_script(suite.init_script)
            await raw.add_init_script(page_script(suite.ended))
            await context.open()
        except BaseException:
            await self._bounded(context.close(), "context_did_not_close")
            raise
        return context

    async def _wipe(self, context: SessionContext, suite: Suite) -> bool:
        try:
            async with asyncio.timeout(self._close_timeout):
                return await context.wipe(suite.origin)
        except (TimeoutError, Error, PageGoneError) as error:
            log.warning("context_not_wiped", error=repr(error))
            return False

    async def _bounded(self, closing: Awaitable[None], event: str) -> None:
        try:
            async with asyncio.timeout(self._close_timeout):
                await closing
        except TimeoutError:
            log.warning(event, bound_seconds=self._close_timeout)
