"""Browser contexts: a fresh one for each session, opened ahead of it, or a wiped one that an earlier session left.

Starting a context with its page costs a renderer process or two, which is most of what opening a session costs, so a
few are kept ready that no session has ever used. Where a suite's pages are the service's own
(`Suite.reuses_contexts`), a context whose session ended in order, with one tab and nothing but the suite's own pages in
it, is wiped (cookies, storage and caches of the origin, window name, pointer) and serves the next session with the same
options. Any doubt closes it. At every moment a context belongs to one session at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

import structlog
from playwright.async_api import Error
from webagent_runtime.errors import ServiceError

from webagent_env.browser import Browser
from webagent_env.cdp import DocumentReplacedError, PageGoneError, ScriptError
from webagent_env.config import EnvConfig
from webagent_env.context import SessionContext
from webagent_env.egress import Egress
from webagent_env.options import ContextOptions
from webagent_env.page import page_script
from webagent_env.policy import Policy, entry
from webagent_env.scratch import Scratch
from webagent_env.tasks import Suite, Task

log = structlog.get_logger()

_MOST_USES = 200

_Key = tuple[str, ContextOptions]


@dataclass(slots=True)
class _Idle:
    context: SessionContext
    key: _Key
    since: float


class Contexts:
    """All contexts that no session holds, and the way to get more."""

    def __init__(self, browser: Browser, config: EnvConfig, directory: Path) -> None:
        self._browser = browser
        self._egress = config.egress
        self._directory = directory
        self._warm = config.sessions.warm_contexts
        self._close_timeout = config.browser.close_timeout_seconds
        self._idle_seconds = config.sessions.lease_seconds
        self._idle: list[_Idle] = []
        self._warming: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self, suite: Suite, task: Task, options: ContextOptions) -> SessionContext:
        """A context with one blank tab."""
        key = _key(suite, task, options)
        for idle in reversed(self._idle):
            if idle.key == key and idle.context.generation == self._browser.generation and not idle.context.gone():
                self._idle.remove(idle)
                return idle.context
        return await self._open(suite, task, options)

    async def give_back(
        self, context: SessionContext, suite: Suite, task: Task, options: ContextOptions, *, sound: bool
    ) -> None:
        """Wipes a context for the next session, or closes it; `sound` says that nothing went wrong in it."""
        reusable = suite.reuses_contexts and options.plain and context.uses < _MOST_USES
        if sound and reusable and not self._closed and await self._wipe(context, suite):
            self._idle.append(_Idle(context, _key(suite, task, options), time.monotonic()))
            return
        await self._bounded(context.close(), "context_did_not_close")

    def warm_up(self, suite: Suite, task: Task, options: ContextOptions) -> None:
        """Opens contexts ahead of the next sessions like this one, in the background, one after another."""
        if options.storage_state or self._closed or (self._warming is not None and not self._warming.done()):
            return
        self._warming = asyncio.create_task(self._fill(suite, task, options), name="warm-contexts")
        self._warming.add_done_callback(lambda warming: warming.cancelled() or warming.exception())

    async def _fill(self, suite: Suite, task: Task, options: ContextOptions) -> None:
        key = _key(suite, task, options)
        while sum(idle.key == key for idle in self._idle) < self._warm:
            try:
                context = await self._open(suite, task, options)
            except (Error, PageGoneError, ServiceError) as error:
                log.warning("context_not_warmed", error=repr(error))
                return
            self._idle.append(_Idle(context, key, time.monotonic()))

    async def warmed(self) -> None:
        """Waits until the contexts that are being opened ahead are open."""
        if self._warming is not None:
            await asyncio.wait([self._warming])

    async def close(self) -> None:
        """Closes all contexts and opens no more."""
        self._closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        await self.close_idle()

    async def close_idle(self, *, older_than: float | None = None) -> None:
        """Closes the contexts that have been idle since before that moment; without one, all."""
        old = [idle for idle in self._idle if older_than is None or idle.since <= older_than]
        self._idle = [idle for idle in self._idle if idle not in old]
        await asyncio.gather(*(self._bounded(idle.context.close(), "context_did_not_close") for idle in old))

    def next_expiry(self) -> float | None:
        """When the oldest idle context is to be closed, on the monotonic clock."""
        return min((idle.since + self._idle_seconds for idle in self._idle), default=None)

    async def expire(self) -> None:
        """Closes what has been idle for too long, or whose browser takes no more sessions."""
        now = time.monotonic()
        for idle in self._idle:
            if idle.context.generation != self._browser.generation:
                idle.since = now - self._idle_seconds
        await self.close_idle(older_than=now - self._idle_seconds)

    async def _open(self, suite: Suite, task: Task, options: ContextOptions) -> SessionContext:
        egress = await self._guard(suite, task, options)
        made = options.for_playwright()
        if suite.reuses_contexts:
            made["service_workers"] = "block"
        if egress is not None:
            # Chromium would go to loopback addresses by itself.
            made["proxy"] = {"server": egress.address, "bypass": "<-loopback>"}
        try:
            raw, generation = await self._browser.context(**made)
        except BaseException:
            if egress is not None:
                await egress.stop()
            raise
        context = SessionContext(raw, generation, options, scratch=Scratch(self._directory), egress=egress)
        try:
            if suite.init_script:
                await raw.add_init_script(suite.init_script)
            await raw.add_init_script(page_script(suite.ended))
            # A wiped context could not tell its own files from those of the session before.
            await context.open(self._browser.downloads(generation) if egress is not None else None)
        except BaseException:
            await self._bounded(context.close(), "context_did_not_close")
            raise
        return context

    async def _guard(self, suite: Suite, task: Task, options: ContextOptions) -> Egress | None:
        """The way out of a context; None where only the service's own pages can be reached."""
        if suite.reuses_contexts and options.plain:
            return None
        own = tuple(entry(host) for host in (*suite.hosts(task), *self._egress.allowed_hosts))
        asked = tuple(entry(host) for host in options.allowed_hosts)
        egress = Egress(Policy(own, asked, self._egress.sessions_may_name_private))
        await egress.start()
        return egress

    async def _wipe(self, context: SessionContext, suite: Suite) -> bool:
        try:
            async with asyncio.timeout(self._close_timeout):
                return await context.wipe(suite.origin)
        except (TimeoutError, Error, PageGoneError, DocumentReplacedError, ScriptError) as error:
            log.warning("context_not_wiped", error=repr(error))
            return False

    async def _bounded(self, closing: Awaitable[None], event: str) -> None:
        try:
            async with asyncio.timeout(self._close_timeout):
                await closing
        except TimeoutError:
            log.warning(event, bound_seconds=self._close_timeout)


def _key(suite: Suite, task: Task, options: ContextOptions) -> _Key:
    # Where contexts have a way out, it is that of their task's hosts.
    hosts = () if suite.reuses_contexts else suite.hosts(task)
    return "|".join((suite.name, *hosts)), options
