"""One session's browser context: its tabs, dialogs and downloads, and the one way to act on it and to read it.

Tabs that pages open are followed; when the active one closes, the one opened before it takes its place, and an empty
one when none is left. Dialogs are answered at once, because a page stands still until they are; what they said is
shown in the next observation, and so is what was downloaded. A window that was opened for a download is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import structlog
from playwright.async_api import BrowserContext, Error, Page
from playwright.async_api import Dialog as PlaywrightDialog

from webagent_env.actions import Action, Exit, Failed, Goto, Reason, SwitchTab
from webagent_env.cdp import PageGoneError, whole
from webagent_env.downloads import Downloads, SessionDownloads
from webagent_env.egress import Egress
from webagent_env.execution import perform
from webagent_env.marks import mark
from webagent_env.observation import Dialog, Download, Kind, Observation, Timings, View, bounded
from webagent_env.observation import Tab as TabInfo
from webagent_env.options import ContextOptions
from webagent_env.page import Tab
from webagent_env.scratch import Scratch

log = structlog.get_logger()

# A window that was opened or closed for certain takes this long at most to come or go.
_WINDOW_SECONDS = 10.0
# Between the failure of an input and the news that its page has closed.
_CLOSING_SECONDS = 1.0
_MOST_DIALOGS = 5
# As much of a title as world.js gives.
_TITLE_CHARACTERS = 500


class SessionContext:
    """The tabs of one session; `open` must come first. Not for use by two callers at once."""

    def __init__(
        self,
        context: BrowserContext,
        generation: int,
        options: ContextOptions,
        *,
        scratch: Scratch,
        egress: Egress | None,
    ) -> None:
        self.generation = generation
        self.uses = 0
        self._context = context
        self._options = options
        self.scratch = scratch
        self._egress = egress
        self._tabs: list[Tab] = []
        self._active: Tab | None = None
        self._probing = 0
        self._probes: set[Page] = set()
        self._followed = 0
        self._dialogs: list[Dialog] = []
        self._downloads: SessionDownloads | None = None
        self.on_crash: Callable[[], None] = lambda: None
        self._attaching: set[asyncio.Task[None]] = set()
        self._tabs_changed = asyncio.Event()
        self.closing = asyncio.Event()

    async def open(self, downloads: Downloads | None = None) -> Tab:
        """Opens the first tab; without `downloads`, its pages cannot download."""
        self._context.on("dialog", self._answer)
        page = await self._context.new_page()
        tab = await self._adopt(page)
        if downloads is not None:
            self._downloads = await downloads.allow(await tab.context_id(), self.scratch.downloads)
        self._context.on("page", self._page_opened)
        return tab

    async def perform(self, action: Action, navigation: float) -> Failed | None:
        """Does the action on the active tab; an exit touches no page. `navigation` bounds a Goto, in seconds."""
        if isinstance(action, Exit):
            return None
        self._followed = 0
        tab = await self.active()
        if isinstance(action, SwitchTab):
            tabs = [tab for tab in self._tabs if not tab.page.is_closed()]
            if action.tab >= len(tabs):
                there = f"there is no tab {action.tab}; there are {len(tabs)}, counted from 0"
                return Failed(Reason.NOWHERE_TO_GO, there)
            tab = self._active = tabs[action.tab]
        if isinstance(action, Goto) and self._egress is not None:
            why = self._egress.policy.url_refusal(action.url)
            if why:
                return Failed(Reason.NOT_ALLOWED, why)
        try:
            return await perform(tab, action, self.closing, navigation)
        except PageGoneError:
            # A tab that closes itself amid an action is no fault: `finish` reads the one that is left.
            await tab.wait_closed(_CLOSING_SECONDS)
            if tab.crashed or not tab.page.is_closed():
                raise
            return None

    async def finish(self, view: View, bound: float) -> tuple[Observation, bool | None, Timings]:
        """Waits for quiet and reads the active tab; also says whether the page ended the task, if it knows."""
        deadline = time.monotonic() + bound
        while True:
            tab = await self.active()
            try:
                seen = await tab.finish(max(0.0, deadline - time.monotonic()), view.script_options())
                if tab.popups:
                    await self._await_popups(tab)
                if seen["closed"]:
                    await tab.wait_closed(_WINDOW_SECONDS)
                if self._downloads is not None:
                    seen["quiet"] &= await self._settle_downloads(self._downloads, tab, deadline)
                if tab is self._active and not tab.gone():
                    break
            except PageGoneError:
                if tab.crashed or not tab.page.is_closed():
                    raise
        started = time.monotonic()
        observation = await self._complete(seen, view, tab)
        timings = Timings(
            settle=seen["settleMs"] / 1000,
            observe=seen["observeMs"] / 1000 + time.monotonic() - started,
            quiet=seen["quiet"],
            waited_for=seen["waitedFor"],
        )
        return observation, seen["ended"], timings

    async def active(self) -> Tab:
        """The tab that the agent is on."""
        if self._active is not None and not self._active.page.is_closed():
            return self._active
        self._tabs = [tab for tab in self._tabs if not tab.page.is_closed()]
        if self._tabs:
            self._active = self._tabs[-1]
            return self._active
        try:
            return await self._adopt(await self._new_page())
        except Error as error:
            raise PageGoneError(error.message) from error

    async def open_tab(self) -> Tab:
        """One more tab, which becomes the active one."""
        return await self._adopt(await self._new_page())

    def turn_to(self, tab: Tab) -> None:
        """Makes a tab the active one."""
        self._active = tab

    async def start_history_here(self) -> None:
        """No going back beyond what the tabs show now."""
        for tab in self._tabs:
            await tab.start_history_here()

    async def set_cookie(self, name: str, value: str, url: str) -> None:
        """Sets a cookie that pages' scripts cannot see."""
        await self._context.add_cookies([{"name": name, "value": value, "url": url, "httpOnly": True}])

    async def storage_state(self) -> dict[str, Any]:
        """Its cookies and local storage."""
        return dict(await self._context.storage_state())

    async def probe_page(self) -> Page:
        """A page of its own in the same context, which is no tab of the agent; the caller closes it."""
        page = await self._new_page()
        self._probes.add(page)
        page.on("close", lambda closed: self._probes.discard(closed))  # noqa: PLW0108  Playwright marks its handlers
        return page

    def gone(self) -> bool:
        """Whether its tab died or was closed."""
        return self._active is None or self._active.gone()

    async def wipe(self, origin: str) -> bool:
        """Makes the context as good as new; False if its session did anything that this cannot undo."""
        if self.scratch.used or len(self._tabs) != 1 or self._attaching or self.gone():
            return False
        tab = self._tabs[0]
        if tab.origins - {origin, "null"}:
            return False
        # A pointer left over the page would hover over the next one.
        await tab.page.mouse.move(-1, -1)
        await tab.wipe(origin)
        await self._context.clear_cookies()
        await tab.page.goto("about:blank")
        self._dialogs.clear()
        self.closing = asyncio.Event()
        self.on_crash = lambda: None
        self.uses += 1
        return True

    async def close(self) -> None:
        """Closes the context with all its pages."""
        self.closing.set()
        for task in list(self._attaching):
            task.cancel()
        try:
            await self._context.close()
        except Error as error:
            # Its browser is gone, and the context with it.
            log.debug("context_already_gone", error=error.message)
        finally:
            if self._downloads is not None:
                self._downloads.closed = True
            self.scratch.remove()
            if self._egress is not None:
                await self._egress.stop()

    async def _complete(self, seen: dict[str, Any], view: View, tab: Tab) -> Observation:
        tabs = [(each, each is tab) for each in self._tabs if not each.page.is_closed()]
        infos = [
            TabInfo(str(seen["url"]), str(seen["title"]), active=True)
            if active
            else TabInfo(each.page.url, await _title(each.page), active=False)
            for each, active in tabs
        ]
        shot = marked = b""
        if view.kinds & {Kind.SCREENSHOT, Kind.MARKED_SCREENSHOT}:
            try:
                shot = await tab.page.screenshot(type="png")
            except Error as error:
                raise PageGoneError(error.message) from error
        if Kind.MARKED_SCREENSHOT in view.kinds:
            marked = await asyncio.to_thread(mark, shot, seen["boxes"])
        dialogs, self._dialogs = tuple(self._dialogs), []
        downloads = self._downloads.take_news() if self._downloads is not None else ()
        text, truncated = self._html(seen, (*dialogs, *downloads), view)
        tree, tree_truncated = self._tree(seen, (*dialogs, *downloads), view)
        return Observation(
            text=text,
            truncated=truncated,
            labels=int(seen["labels"]),
            url=str(seen["url"]),
            title=str(seen["title"]),
            tabs=tuple(infos),
            screenshot=shot if Kind.SCREENSHOT in view.kinds else b"",
            axtree=tree,
            axtree_truncated=tree_truncated,
            marked_screenshot=marked,
            dialogs=dialogs,
            downloads=downloads,
        )

    def _html(self, seen: dict[str, Any], told: tuple[Dialog | Download, ...], view: View) -> tuple[str, bool]:
        if Kind.SIMPLIFIED_HTML not in view.kinds:
            return "", False
        text = "".join(f"{each.as_html()}\n" for each in told) + str(seen["text"])
        return bounded(text, view, already_cut=bool(seen["truncated"]), markup=True)

    def _tree(self, seen: dict[str, Any], told: tuple[Dialog | Download, ...], view: View) -> tuple[str, bool]:
        if Kind.AXTREE not in view.kinds:
            return "", False
        text = "".join(f"{each.as_line()}\n" for each in told) + str(seen["axtree"])
        return bounded(text, view, already_cut=bool(seen["axtreeTruncated"]), markup=False)

    async def _new_page(self) -> Page:
        # The "page" event comes within new_page, and this one is not to be followed.
        self._probing += 1
        try:
            return await self._context.new_page()
        finally:
            self._probing -= 1

    async def _adopt(self, page: Page) -> Tab:
        tab = await Tab.attach(page, self.scratch, self._crashed)
        self._tabs.append(tab)
        self._active = tab
        return tab

    def _crashed(self) -> None:
        self.on_crash()

    def _page_opened(self, page: Page) -> None:
        if self._probing:
            return
        task = asyncio.create_task(self._follow(page))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _follow(self, page: Page) -> None:
        if self._downloads is not None:
            downloads = self._downloads
            page.on("framenavigated", lambda _: downloads.expect_fewer())
        try:
            await self._adopt(page)
        except PageGoneError:
            log.debug("popup_closed_itself", url=page.url)
            self._tabs[0].origins.add(page.url)  # it is not known what it did
        self._followed += 1
        self._tabs_changed.set()

    async def _await_popups(self, tab: Tab) -> None:
        """The page opened windows: their tabs are about to come."""
        try:
            async with asyncio.timeout(_WINDOW_SECONDS):
                while self._followed < tab.popups:
                    self._tabs_changed.clear()
                    await self._tabs_changed.wait()
        except TimeoutError:
            log.warning("popup_did_not_come", expected=tab.popups, came=self._followed)
        tab.popups = 0

    async def _settle_downloads(self, downloads: SessionDownloads, tab: Tab, deadline: float) -> bool:
        """Waits for what the action began to download; False if it goes on."""
        active = await self.active()
        downloads.expect(tab.files_answered + bool(active is not tab and tab.addressed_popups and _empty(active)))
        tab.files_answered = tab.addressed_popups = 0
        ended = await downloads.settle(deadline)
        for each in self._tabs[1:]:
            if each.frame in downloads.frames and not each.gone() and _empty(each):
                with contextlib.suppress(Error):  # it closed itself
                    await each.page.close()
        return ended

    async def _answer(self, dialog: PlaywrightDialog) -> None:
        ours = dialog.page not in self._probes  # a window that has just been opened is no tab yet
        try:
            # Leaving a page is what the agent asked for.
            if self._options.accept_dialogs or dialog.type == "beforeunload":
                said = self._options.prompt_text or dialog.default_value
                await dialog.accept(said if dialog.type == "prompt" else None)
                answer = "accepted"
            else:
                await dialog.dismiss()
                answer = "dismissed"
        except Error:
            # The page went away together with its dialog.
            return
        if ours and dialog.type != "beforeunload" and len(self._dialogs) < _MOST_DIALOGS:
            self._dialogs.append(Dialog(dialog.type, " ".join(dialog.message.split())[:500], answer))


def _empty(tab: Tab) -> bool:
    return tab.page.url in {"", "about:blank"}


async def _title(page: Page) -> str:
    try:
        return str(whole((await page.title())[:_TITLE_CHARACTERS]))
    except Error:
        return ""
