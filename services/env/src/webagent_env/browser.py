"""The Chromium of this service: found, started, started again after a crash, and ended for certain.

`context()` gives a context of a browser that runs now; it starts one if none does. Each browser has a generation
number, so that a session knows whether its own is still the current one. `on_lost` is called once for each browser
that went away without being asked to, as soon as the kernel knows: Playwright does not tell of a driver that died.
After many sessions, or past a memory bound, a browser is retired: new contexts live in a new one, and it ends with its
last context. Nothing of a browser outlives `close()`: what does not close in order within its bound is killed, and
should this process be killed itself, the driver's pipe breaks, the driver ends the browser, and the next service
removes the rest (see `leftovers`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import structlog
from playwright.async_api import Browser as PlaywrightBrowser
from playwright.async_api import BrowserContext, Error, Playwright, async_playwright
from webagent_runtime.config import ConfigError

from webagent_env import errors
from webagent_env.config import BrowserConfig, DownloadsConfig
from webagent_env.downloads import Downloads
from webagent_env.leftovers import InstanceDirectory, kill_tree

log = structlog.get_logger()

# The headless shell draws no window of its own: a third of the processor time of the full browser. Debian's
# /usr/bin/chromium is a wrapper that adds flags of its own; these are the programs themselves.
DEBIAN_EXECUTABLES = (Path("/usr/lib/chromium/chromium-headless-shell"), Path("/usr/lib/chromium/chromium"))
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Peer connections would go around the proxy.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    # A wheel action scrolls at once; an animated scroll would be read half-way.
    "--disable-smooth-scrolling",
)
_HOW_TO_GET_IT = (
    "install it with `apt-get install chromium-headless-shell` or `python -m playwright install chromium`, "
    "or name one in browser.executable"
)
_SHOWN_STDERR_LINES = 8


@dataclass(slots=True)
class _Running:
    """One Chromium with its driver."""

    generation: int
    playwright: Playwright
    browser: PlaywrightBrowser
    processes: list[psutil.Process]
    downloads: Downloads
    measured: float
    ending: bool = False
    watched: list[int] = field(default_factory=list)
    opened: int = 0
    contexts: int = 0

    @property
    def alive(self) -> bool:
        return self.browser.is_connected() and all(
            process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in self.processes
        )


class Browser:
    """Chromium under Playwright, restarted when it is lost, and replaced when it has served for long."""

    def __init__(
        self,
        config: BrowserConfig,
        downloads: DownloadsConfig,
        directory: InstanceDirectory,
        on_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._downloads = downloads
        self._directory = directory
        self._on_lost = on_lost
        self._starting = asyncio.Lock()
        self._current: _Running | None = None
        self._retired: dict[int, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self.generation = 0
        self.version = ""

    async def start(self) -> None:
        """Starts the browser now, so that a machine without one is noticed at start."""
        async with self._starting:
            await self._ensure()

    async def context(self, **options: Any) -> tuple[BrowserContext, int]:
        """A new isolated context, and the generation of the browser that it lives in."""
        async with self._starting:
            try:
                running = await self._ensure()
            except ConfigError as error:
                raise errors.browser_unavailable(str(error)) from error
        running.opened += 1
        running.contexts += 1
        try:
            context = await running.browser.new_context(**options)
        except BaseException as error:
            self._context_closed(running)
            if isinstance(error, Error):
                if "Invalid cookie fields" in error.message:
                    raise errors.invalid_request("options.storage_state_json: no browser takes its cookies") from error
                raise errors.browser_unavailable(f"no new context: {error.message}") from error
            raise
        context.on("close", lambda _: self._context_closed(running))
        return context, running.generation

    def downloads(self, generation: int) -> Downloads | None:
        """What contexts of that browser download; None where none may."""
        one = self._current if self._current and self._current.generation == generation else None
        running = one or self._retired.get(generation)
        return running.downloads if running is not None and self._downloads.max_files else None

    @property
    def opened(self) -> int:
        """Contexts that the current browser has opened."""
        return 0 if self._current is None else self._current.opened

    @property
    def processes(self) -> list[psutil.Process]:
        """The current browser's driver, and the browser itself last."""
        return [] if self._current is None else self._current.processes

    async def retired_ended(self) -> None:
        """Waits until the browsers that are ending have ended."""
        await asyncio.gather(*self._ending)

    async def close(self) -> None:
        """Ends the browsers and their drivers, within the bound for closing plus the time to kill them."""
        self._closed = True
        running = [*self._retired.values(), *([self._current] if self._current is not None else [])]
        self._current = None
        self._retired.clear()
        await asyncio.gather(*(self._end(each) for each in running), *self._ending)

    async def _ensure(self) -> _Running:
        if self._closed:
            raise errors.draining()
        current = self._current
        if current is not None and current.alive:
            if not await self._worn_out(current):
                return current
            log.info("browser_retired", generation=current.generation, sessions=current.opened)
            self._retired[current.generation] = current
        elif current is not None:
            await self._end(current)
        self._current = None
        self._current = await self._launch()
        for generation in list(self._retired):
            self._end_if_unused(generation)
        return self._current

    async def _worn_out(self, running: _Running) -> bool:
        if running.opened >= self._config.sessions_before_restart:
            return True
        now = time.monotonic()
        if now - running.measured < self._config.memory_check_seconds:
            return False
        running.measured = now
        used = await asyncio.to_thread(_memory, running.processes)
        return used > self._config.memory_before_restart_mib * 2**20

    def _context_closed(self, running: _Running) -> None:
        running.contexts -= 1
        self._end_if_unused(running.generation)

    def _end_if_unused(self, generation: int) -> None:
        running = self._retired.get(generation)
        if running is None or running.contexts > 0:
            return
        if not running.alive:  # that is why its contexts closed
            self._lost(running)
            return
        del self._retired[generation]
        running.ending = True
        task = asyncio.create_task(self._end(running), name=f"end-browser-{generation}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _launch(self) -> _Running:
        before = set(psutil.Process().children())
        with _temporary_files_in(self._directory.path):
            playwright = await async_playwright().start()
        try:
            executable = find_executable(self._config.executable, Path(playwright.chromium.executable_path))
            browser = await playwright.chromium.launch(
                executable_path=executable,
                headless=True,
                args=list(FLAGS),
                chromium_sandbox=self._config.sandbox,
                timeout=self._config.launch_timeout_seconds * 1000,
                # Signals are this service's to handle: it drains before it closes the browser.
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except BaseException as error:
            await self._stop_driver(playwright, [c for c in psutil.Process().children() if c not in before])
            if isinstance(error, Error):
                raise ConfigError(f"Chromium did not start: {_stderr_of(error.message)}") from error
            raise
        self.generation += 1
        self.version = browser.version
        drivers = [child for child in psutil.Process().children() if child not in before]
        processes = [*drivers, *(child for driver in drivers for child in driver.children())]
        downloads = Downloads(browser, self._downloads)
        running = _Running(self.generation, playwright, browser, processes, downloads, measured=time.monotonic())
        self._directory.record([*processes, *(p for old in self._retired.values() for p in old.processes)])
        browser.on("disconnected", lambda _: self._lost(running))
        self._watch(running)
        log.info("browser_started", version=self.version, executable=str(executable), generation=self.generation)
        return running

    def _watch(self, running: _Running) -> None:
        if not hasattr(os, "pidfd_open"):  # not on this system: Playwright tells of most
            return
        for process in running.processes:
            with suppress(ProcessLookupError):
                running.watched.append(os.pidfd_open(process.pid))
                asyncio.get_running_loop().add_reader(running.watched[-1], self._lost, running)

    def _unwatch(self, running: _Running) -> None:
        while running.watched:
            descriptor = running.watched.pop()
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _lost(self, running: _Running) -> None:
        self._unwatch(running)
        if self._closed or running.ending:
            return
        running.ending = True
        if self._retired.pop(running.generation, None) is not None:
            running.contexts = 0
            task = asyncio.create_task(self._end(running), name=f"end-browser-{running.generation}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        log.error("browser_lost", generation=running.generation)
        self._on_lost(running.generation)

    async def _end(self, running: _Running) -> None:
        """Closes in order what still answers, then kills what is left."""
        running.ending = True
        self._unwatch(running)
        try:
            async with asyncio.timeout(self._config.close_timeout_seconds):
                if running.browser.is_connected():
                    await running.browser.close()
        except (TimeoutError, Error) as error:
            log.warning("browser_not_closed_in_order", error=repr(error))
        await self._stop_driver(running.playwright, running.processes)

    async def _stop_driver(self, playwright: Playwright, processes: list[psutil.Process]) -> None:
        try:
            async with asyncio.timeout(self._config.close_timeout_seconds):
                if all(process.is_running() for process in processes[:1]):
                    await playwright.stop()
        except (TimeoutError, Error) as error:
            log.warning("driver_not_stopped_in_order", error=repr(error))
        for process in reversed(processes):
            kill_tree(process)
        await asyncio.to_thread(psutil.wait_procs, processes, self._config.close_timeout_seconds)


def _memory(processes: list[psutil.Process]) -> int:
    """Bytes that the processes and their descendants hold for themselves, what they share counted once a process."""
    total = 0
    for process in {each for one in processes for each in (one, *_descendants(one))}:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_info().rss
    return total


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def find_executable(configured: Path | None, downloaded: Path) -> Path:
    """The Chromium to run: the configured one, else one of Debian's, else the one Playwright downloaded."""
    if configured is not None:
        if not configured.is_file():
            raise ConfigError(f"browser.executable {configured} does not exist; {_HOW_TO_GET_IT}")
        return configured
    for candidate in (*DEBIAN_EXECUTABLES, downloaded):
        if candidate.is_file():
            return candidate
    raise ConfigError(f"Chromium is missing: {_HOW_TO_GET_IT}")


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Profiles go where they are found again: the driver takes its temporary directory from its environment."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def _stderr_of(message: str) -> str:
    """The browser's own words in a launch failure, or else the failure's first line."""
    lines = [line.partition("[err]")[2].strip() for line in message.splitlines() if "[err]" in line]
    said = [line for line in dict.fromkeys(lines) if line]
    first = message.strip().splitlines()[0] if message.strip() else "no reason given"
    return f"{first} stderr: {' | '.join(said[-_SHOWN_STDERR_LINES:])}" if said else " ".join(message.split())
