"""All sessions of this replica: opened once, leased, and closed for certain.

    create ──► opening ──► open ──► closing ──► gone
                 │ failed             ▲ CloseSession, lease, lifetime, shutdown
                 ▼
                gone

One task, the reaper, closes sessions whose lease or lifetime ran out; it waits until the earliest end, or until a new
session has an earlier one. Draining refuses new sessions and waits until the last one is gone. When the browser is
lost its sessions stay, readable as faults, until they are closed like any other.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

import structlog
from playwright.async_api import Error
from webagent_runtime.errors import ServiceError
from webagent_runtime.metrics import SESSION_CAPACITY, SESSIONS

from webagent_env import errors
from webagent_env.browser import Browser
from webagent_env.cdp import PageGoneError
from webagent_env.config import EnvConfig
from webagent_env.contexts import Contexts
from webagent_env.leftovers import InstanceDirectory
from webagent_env.options import ContextOptions
from webagent_env.session import Session, SessionSpec
from webagent_env.tasks import Claim, Suite

log = structlog.get_logger()


@dataclass(slots=True)
class _Entry:
    spec: SessionSpec
    opening: asyncio.Task[Session]


class SessionPool:
    """The sessions and the browser that they live in."""

    def __init__(self, config: EnvConfig, directory: InstanceDirectory, suites: list[Suite]) -> None:
        self.suites = {suite.name: suite for suite in suites}
        self.browser = Browser(config.browser, config.downloads, directory, self._browser_lost)
        self._limits = config.sessions
        self._contexts = Contexts(self.browser, config, directory.path)
        self._entries: dict[str, _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._draining = False
        self._reaper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the suites, the browser and the reaper."""
        SESSION_CAPACITY.set(self._limits.capacity)
        for suite in self.suites.values():
            await suite.start()
        await self.browser.start()
        for suite in self.suites.values():
            if suite.reuses_contexts and suite.tasks():
                self._contexts.warm_up(suite, suite.tasks()[0], self._default_options(suite))
        self._reaper = asyncio.create_task(self._reap(), name="session-reaper")

    async def create(self, spec: SessionSpec) -> Session:
        """Opens a session, or returns the one that an equal request has opened."""
        entry = self._entries.get(spec.session_id)
        if entry is None:
            if self._draining:
                raise errors.draining()
            if len(self._entries) >= self._limits.capacity:
                raise errors.at_capacity(self._limits.capacity)
            entry = _Entry(spec, asyncio.create_task(self._open(spec), name=f"open-{spec.session_id}"))
            entry.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._entries[spec.session_id] = entry
            self._count()
        elif entry.spec != spec:
            raise errors.session_conflict(spec.session_id)
        session = await asyncio.shield(entry.opening)
        session.touch()
        return session

    def get(self, session_id: str) -> Session:
        """The open session of that id; this counts as a call."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.opening.done() or entry.opening.exception() is not None:
            raise errors.session_not_found(session_id)
        session = entry.opening.result()
        session.touch()
        return session

    async def close(self, session_id: str) -> bool:
        """Closes a session with everything that belongs to it; False if there is none."""
        entry = self._entries.pop(session_id, None)
        if entry is None:
            return False
        self._count()
        task = asyncio.create_task(self._close(entry), name=f"close-{session_id}")
        self._closing.add(task)
        task.add_done_callback(self._closed)
        await asyncio.shield(task)
        return True

    def sessions(self) -> list[Session]:
        """The open sessions, oldest first."""
        opened = [entry.opening for entry in self._entries.values()]
        found = [task.result() for task in opened if task.done() and not task.cancelled() and task.exception() is None]
        return sorted(found, key=lambda session: session.created_at)

    async def warmed(self) -> None:
        """Waits until the next session's context is ready."""
        await self._contexts.warmed()

    async def forget_idle(self) -> None:
        """Closes the contexts that no session holds."""
        await self._contexts.close_idle()

    @property
    def capacity(self) -> int:
        """Sessions held at the same time."""
        return self._limits.capacity

    async def drain(self) -> None:
        """Refuses new sessions and returns once the last one is gone."""
        self._draining = True
        while self._entries or self._closing:
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """Closes all sessions, the browser and the suites, whatever state they are in."""
        self._draining = True
        if self._reaper is not None:
            self._reaper.cancel()
        await asyncio.gather(*(self.close(session_id) for session_id in list(self._entries)), return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._contexts.close()
        await self.browser.close()
        for suite in self.suites.values():
            await suite.stop()

    # ---- opening -----------------------------------------------------------------------------------------------------
    async def _open(self, spec: SessionSpec) -> Session:
        try:
            async with asyncio.timeout(spec.reset_timeout):
                try:
                    session = await self._open_once(spec)
                except (PageGoneError, Error) as error:
                    # A browser that died under the attempt says nothing about the next one.
                    log.warning("session_opened_again", session_id=spec.session_id, error=str(error))
                    session = await self._open_once(spec)
        except BaseException as error:
            # A session that was closed while it opened may have a namesake by now.
            entry = self._entries.get(spec.session_id)
            if entry is not None and entry.spec is spec:
                del self._entries[spec.session_id]
            self._count()
            raise self._opening_failed(spec, error) from error
        log.info("session_opened", session_id=spec.session_id, task=str(spec.task), seed=spec.seed)
        self._changed.set()
        return session

    def _opening_failed(self, spec: SessionSpec, error: BaseException) -> BaseException:
        if isinstance(error, TimeoutError):
            return errors.reset_timeout(str(spec.task), spec.reset_timeout)
        if isinstance(error, PageGoneError | Error):
            return errors.browser_unavailable(f"the browser died twice while {spec.task} was opened")
        return error

    async def _open_once(self, spec: SessionSpec) -> Session:
        suite = self.suites[spec.task.suite]
        claim = await suite.claim(spec.task, self.browser)
        try:
            return await self._open_claimed(spec, suite, claim)
        except BaseException:
            await claim.release()
            raise

    async def _open_claimed(self, spec: SessionSpec, suite: Suite, claim: Claim) -> Session:
        task, options = spec.task, spec.options
        if not options.storage_state:
            options = replace(options, storage_state=claim.storage_state)
        context = await self._contexts.take(suite, task, options)
        try:
            instruction = await suite.reset(context, task, spec.seed, claim)
            await context.start_history_here()
            session = Session(spec, suite, context, claim, instruction=instruction, max_steps=self._limits.max_steps)
            await session.first_observation()
        except BaseException:
            await self._contexts.give_back(context, suite, task, options, sound=False)
            raise
        claim.played = True
        self._contexts.warm_up(suite, task, options)
        return session

    def _default_options(self, suite: Suite) -> ContextOptions:
        return ContextOptions(suite.viewport, accept_dialogs=self._limits.dialogs == "accept")

    # ---- closing -----------------------------------------------------------------------------------------------------
    async def _close(self, entry: _Entry) -> None:
        try:
            session = await entry.opening
        except (ServiceError, asyncio.CancelledError):
            return
        sound = await session.stop()
        spec = entry.spec
        try:
            await self._contexts.give_back(session.context, session.suite, spec.task, spec.options, sound=sound)
        finally:
            await session.claim.release()
        log.info("session_closed", session_id=spec.session_id, steps=session.next_step_index)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("session_not_closed", exc_info=task.exception())

    async def _reap(self) -> None:
        while True:
            now = time.monotonic()
            expired = [session.spec for session in self.sessions() if session.expires <= now]
            for spec in expired:
                log.warning("session_reaped", session_id=spec.session_id, task=str(spec.task))
            # What goes wrong with one is logged by `_closed`, and keeps no other from its end.
            await asyncio.gather(*(self.close(spec.session_id) for spec in expired), return_exceptions=True)
            await self._contexts.expire()
            ends = [session.expires for session in self.sessions()]
            if (idle := self._contexts.next_expiry()) is not None:
                ends.append(idle)
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, min(ends) - now) if ends else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _browser_lost(self, generation: int) -> None:
        for session in self.sessions():
            if session.context.generation == generation:
                session.lose("the browser died")

    def _count(self) -> None:
        SESSIONS.set(len(self._entries))
        self._changed.set()
