"""What pages download: kept in a directory of their session's own, counted and bounded, and deleted with the session.

Chromium writes each download into the directory of the context that began it, under the download's id, so the file
itself says whose it is: also where the frame or window that began it is gone by now. What passes a bound is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from playwright.async_api import Browser, CDPSession, Error

from webagent_env.config import DownloadsConfig
from webagent_env.observation import Download, DownloadState

log = structlog.get_logger()

# A download that is about to begin, by all that is known, takes this long at most to do so.
_ABOUT_TO_BEGIN_SECONDS = 1.0
_MOST_BEGUN = 1000
_MOST_REFUSED = 20
_NAME_CHARACTERS = 255
_URL_CHARACTERS = 2000
_STATES = {"inProgress": DownloadState.RUNNING, "completed": DownloadState.COMPLETED}


class SessionDownloads:
    """The downloads of one browser context."""

    def __init__(self, context: str, directory: Path, limits: DownloadsConfig) -> None:
        self.context = context
        self.closed = False
        self.frames: set[str] = set()  # in which they began
        self._directory = directory
        self._limits = limits
        self._known: dict[str, Download] = {}
        self._news: dict[str, None] = {}  # what is to be told, in order
        self._expected = 0
        self._changed = asyncio.Event()

    def owns(self, guid: str) -> bool:
        """Whether that download is of this context."""
        return guid in self._known or any((self._directory / f"{guid}{end}").exists() for end in ("", ".crdownload"))

    def progress(self, guid: str, now: Download, total: int) -> bool:
        """Takes note of how far a download is; False if it must go."""
        before = self._known.get(guid)
        if before is not None:
            if before.state is not DownloadState.RUNNING:
                return before.state is not DownloadState.REFUSED
            now = replace(now, size=max(now.size, before.size))
        elif len(self._known) >= self._limits.max_files + _MOST_REFUSED:
            return False
        why = self._refusal(guid, max(now.size, total))
        if why:
            now = replace(now, state=DownloadState.REFUSED, why=why)
        if before is None or now.state is not DownloadState.RUNNING:
            self._news[guid] = None
        self._known[guid] = now
        self._expected -= before is None and self._expected > 0
        self._changed.set()
        return not why

    def remove(self, guid: str) -> None:
        """Deletes the file of a download that must go."""
        (self._directory / guid).unlink(missing_ok=True)

    def expect(self, number: int) -> None:
        """So many downloads are about to begin, by all that is known."""
        self._expected += number

    def expect_fewer(self) -> None:
        """A page came where a download was thought of."""
        self._expected = max(0, self._expected - 1)
        self._changed.set()

    async def settle(self, deadline: float) -> bool:
        """Waits until those that were not told of have ended; False once the deadline, on the monotonic clock, passed.

        Those that are about to begin are waited for as well, for a while.
        """
        if self._expected:
            await self._wait(min(deadline, time.monotonic() + _ABOUT_TO_BEGIN_SECONDS), lambda: self._expected == 0)
            self._expected = 0
        return await self._wait(
            deadline, lambda: all(self._known[guid].state is not DownloadState.RUNNING for guid in self._news)
        )

    def take_news(self) -> tuple[Download, ...]:
        """The downloads that began or ended since this was asked before, oldest first."""
        told = tuple(self._known[guid] for guid in self._news)
        self._news.clear()
        return told

    def _refusal(self, guid: str, size: int) -> str:
        others = [each for key, each in self._known.items() if key != guid and each.state is not DownloadState.REFUSED]
        if len(others) >= self._limits.max_files:
            return f"a session may download {self._limits.max_files} files"
        if size + sum(each.size for each in others) > self._limits.max_total_mib * 2**20:
            return f"the files of a session may have {self._limits.max_total_mib} MiB in all"
        return ""

    async def _wait(self, deadline: float, done: Callable[[], bool]) -> bool:
        while not done():
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True


class Downloads:
    """The downloads of all contexts of one Chromium."""

    def __init__(self, browser: Browser, limits: DownloadsConfig) -> None:
        self._browser = browser
        self._limits = limits
        self._opening = asyncio.Lock()
        self._cdp: CDPSession | None = None
        self._begun: dict[str, tuple[Download, str]] = {}
        self._sessions: list[SessionDownloads] = []
        self._cancelling: dict[str, asyncio.Task[None]] = {}

    async def allow(self, context: str, directory: Path) -> SessionDownloads:
        """Lets the context of that id download into a directory, which the browser makes when it needs it."""
        async with self._opening:
            if self._cdp is None:
                self._cdp = await self._browser.new_browser_cdp_session()
                self._cdp.on("Browser.downloadWillBegin", self._will_begin)
                self._cdp.on("Browser.downloadProgress", self._progress)
        behavior = {"behavior": "allowAndName", "downloadPath": str(directory), "eventsEnabled": True}
        await self._cdp.send("Browser.setDownloadBehavior", {**behavior, "browserContextId": context})
        allowed = SessionDownloads(context, directory, self._limits)
        self._sessions = [*(session for session in self._sessions if not session.closed), allowed]
        return allowed

    def _will_begin(self, event: dict[str, Any]) -> None:
        while len(self._begun) >= _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        name = str(event["suggestedFilename"])[:_NAME_CHARACTERS]
        self._begun[event["guid"]] = Download(name, str(event["url"])[:_URL_CHARACTERS]), str(event["frameId"])

    def _progress(self, event: dict[str, Any]) -> None:
        guid, ended = str(event["guid"]), event["state"] != "inProgress"
        owner = next((session for session in self._sessions if not session.closed and session.owns(guid)), None)
        if owner is not None and guid in self._begun:
            begun, frame = self._begun[guid]
            if len(owner.frames) < _MOST_BEGUN:
                owner.frames.add(frame)
            state = _STATES.get(event["state"], DownloadState.FAILED)
            now = replace(begun, size=int(event["receivedBytes"]), state=state)
            if not owner.progress(guid, now, int(event["totalBytes"])):
                if ended:
                    owner.remove(guid)
                elif guid not in self._cancelling:
                    self._cancelling[guid] = asyncio.create_task(self._cancel(guid, owner.context))
        if ended:
            self._begun.pop(guid, None)

    async def _cancel(self, guid: str, context: str) -> None:
        assert self._cdp is not None
        try:
            await self._cdp.send("Browser.cancelDownload", {"guid": guid, "browserContextId": context})
        except Error as error:
            log.debug("download_not_cancelled", error=error.message)  # it ended, or its context did
        finally:
            del self._cancelling[guid]
