"""The one Chromium of this service: found, started, started again after a crash, and ended for certain.

`context()` gives a context of a browser that runs now; it starts one if none does. Each browser has a generation
number, so that a session knows whether its own is still the current one. `on_lost` is called once for each browser
that went away without being asked to. Nothing of a browser outlives `close()`: what does not close in order within
its bound is killed, and should this process be killed itself, the driver's pipe breaks, the driver ends the browser,
and the next service removes the rest (see `leftovers`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import structlog
from playwright.async_api import Browser as PlaywrightBrowser
from playwright.async_api import BrowserContext, Error, Playwright, async_playwright
from webagent_runtime.config import ConfigError

from webagent_env import errors
from webagent_env.config import BrowserConfig
from webagent_env.leftovers import InstanceDirectory, kill_tree

log = structlog.get_logger()

# The headless shell draws no window of its own: a third of the processor time of the full browser. Debian's
# /usr/bin/chromium is a wrapper that adds flags of its own; these are the programs themselves.
DEBIAN_EXECUTABLES = (Path("/usr/lib/chromium/chromium-headless-shell"), Path("/usr/lib/chromium/chromium"))
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A wheel action scrolls at once; an animated scroll would be read half-way.
    "--disable-smooth-scrolling",
)
_HOW_TO_GET_IT = (
    "install it with `apt-get install chromium-headless-shell` or `python -m playwright install chromium`, "
    "or name one in browser.executable"
)
_SHOWN_STDERR_LINES = 8


class Browser:
    """Chromium under Playwright, restarted when it is lost."""

    def __init__(
        self, config: BrowserConfig, directory: InstanceDirectory, on_lost: Callable[[int], None] = lambda _: None
    ) -> None:
        self._config = config
        self._directory = directory
        self._on_lost = on_lost
        self._starting = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._browser: PlaywrightBrowser | None = None
        self._processes: list[psutil.Process] = []
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
                browser = await self._ensure()
            except ConfigError as error:
                raise errors.browser_unavailable(str(error)) from error
            generation = self.generation
        try:
            return await browser.new_context(**options), generation
        except Error as error:
            raise errors.browser_unavailable(f"no new context: {error.message}") from error

    async def close(self) -> None:
        """Ends the browser and its driver, within the bound for closing plus the time to kill them."""
        self._closed = True
        await self._end()

    async def _ensure(self) -> PlaywrightBrowser:
        if self._closed:
            raise errors.draining()
        if self._browser is not None and self._browser.is_connected() and self._alive():
            return self._browser
        await self._end()
        try:
            return await self._launch()
        except BaseException:
            await self._end()
            raise

    async def _launch(self) -> PlaywrightBrowser:
        before = set(psutil.Process().children())
        with _temporary_files_in(self._directory.path):
            self._playwright = await async_playwright().start()
        try:
            executable = find_executable(self._config.executable, Path(self._playwright.chromium.executable_path))
            browser = await self._playwright.chromium.launch(
                executable_path=executable,
                headless=True,
                args=list(FLAGS),
                timeout=self._config.launch_timeout_seconds * 1000,
                # Signals are this service's to handle: it drains before it closes the browser.
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            raise ConfigError(f"Chromium did not start: {_stderr_of(error.message)}") from error
        self.generation += 1
        generation = self.generation
        self._browser = browser
        self.version = browser.version
        drivers = [child for child in psutil.Process().children() if child not in before]
        self._processes = [*drivers, *(child for driver in drivers for child in driver.children())]
        self._directory.record(self._processes)
        browser.on("disconnected", lambda _: self._lost(generation))
        log.info("browser_started", version=self.version, executable=str(executable), generation=generation)
        return browser

    def _alive(self) -> bool:
        return bool(self._processes) and all(
            process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in self._processes
        )

    def _lost(self, generation: int) -> None:
        if self._closed or generation != self.generation or self._browser is None:
            return
        self._browser = None
        log.error("browser_lost", generation=generation)
        self._on_lost(generation)

    async def _end(self) -> None:
        """Closes in order what still answers, then kills what is left."""
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        processes, self._processes = self._processes, []
        try:
            async with asyncio.timeout(self._config.close_timeout_seconds):
                if browser is not None:
                    await browser.close()
                if playwright is not None and all(process.is_running() for process in processes[:1]):
                    await playwright.stop()
        except (TimeoutError, Error) as error:
            log.warning("browser_not_closed_in_order", error=repr(error))
        for process in reversed(processes):
            kill_tree(process)
        await asyncio.to_thread(psutil.wait_procs, processes, self._config.close_timeout_seconds)


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
