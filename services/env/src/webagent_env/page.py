"""One tab: what it is loading, and the scripts that run in it.

quiet.js runs in the page's own world from document start; world.js and observation.js run in a world beside it that
the page cannot see, and are put there again after each navigation. Both are called over one CDP session, whose events
also tell which requests and navigations are in flight. `finish` answers once the page is quiet: nothing begun by the
action is loading, and quiet.js agrees; or once its bound is reached. What frames show is read by `frames`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error, Page

from webagent_env.cdp import CHANNEL, DocumentReplacedError, Link, PageGoneError, ScriptError, World, script
from webagent_env.frames import Frames, Target, compose, compose_tree
from webagent_env.loading import Loading
from webagent_env.scratch import Scratch

# What a browser shows when it is asked for as a page; anything else it downloads.
_SHOWN = ("text/", "image/", "audio/", "video/", "application/xhtml", "application/xml", "application/json")
_CALLED = 'typeof value === "function" ? value() : value'
_FAILED = """location.protocol === "chrome-error:" ||
    performance.getEntriesByType("navigation").some((document) => document.responseStatus >= 500)"""


def page_script(ended: str) -> str:
    """The init script of a context; `ended` is a JavaScript function that says whether the task's page ended it."""
    return f"({script('quiet.js')})({{channel: {json.dumps(CHANNEL)}, ended: {ended}}})"


class Tab:
    """One page of a session. Created by `attach`."""

    def __init__(self, page: Page, link: Link, scratch: Scratch, crashed: Callable[[], None]) -> None:
        self.page = page
        self._tell_crash = crashed
        self.scratch = scratch
        self.first_entry = 0
        self.crashed = False
        self.origins: set[str] = set()
        self._link = link
        self._main = World(link, "")
        self._frames = Frames(page, self._main, self.gone, self._listen)
        # Where numbered elements are; None where all are in the page itself.
        self._targets: list[Target] | None = None
        self._loading = Loading()
        self._changed = self._loading.changed
        self.popups = 0
        # Since the action began: windows opened on an address, and files that came where a page was asked for.
        self.addressed_popups = 0
        self.files_answered = 0

    @classmethod
    async def attach(cls, page: Page, scratch: Scratch, crashed: Callable[[], None] = lambda: None) -> Tab:
        """Opens the CDP session of a page and listens to it; `crashed` is called when its process dies."""
        try:
            cdp = await page.context.new_cdp_session(page)
            tab = cls(page, Link(cdp, page.is_closed), scratch, crashed)
            tab._listen(tab._link)
            page.on("crash", tab._crash)
            page.on("close", lambda _: tab._changed.set())
            answers = await asyncio.gather(
                cdp.send("Page.getFrameTree"), cdp.send("Page.enable"), cdp.send("Network.enable")
            )
        except Error as error:
            raise PageGoneError(error.message) from error
        tab._main.frame = answers[0]["frameTree"]["frame"]["id"]
        return tab

    def gone(self) -> bool:
        """Whether nothing can be asked of the page any more."""
        return self.crashed or self.page.is_closed()

    async def begin(self, label: int | None, *, typing: bool = False) -> Any:
        """An action begins: what loads from now on belongs to it. Returns where to point, or {"failed": why}."""
        self._loading.begin()
        self.popups = self.addressed_popups = self.files_answered = 0
        if self._targets is None:
            return await self.call("begin", label, typing)
        at = await self.call("begin", None, False)
        await self._frames.begin()
        if label is None:
            return at
        try:
            return await self._point_at(self._targets[label], typing)
        except (DocumentReplacedError, ScriptError):
            return {"failed": "its frame is gone from the page", "why": "gone"}

    async def _point_at(self, target: Target, typing: bool) -> Any:
        at = await target.worlds[-1].call("begin", target.label, typing)
        for world, number in zip(reversed(target.worlds[:-1]), reversed(target.through), strict=True):
            if "failed" in at:
                break
            at = {**at, **await world.call("through", number, at["x"], at["y"])}
        return at

    async def call(self, function: str, *arguments: object) -> Any:
        """Calls a function of world.js in the page's main document."""
        return await self._main.call(function, *arguments)

    async def call_on(self, label: int, function: str, *arguments: object) -> Any:
        """Calls a function of world.js on a numbered element."""
        world, label = self._place(label)
        return await world.call(function, label, *arguments)

    async def give_files(self, label: int, files: list[str]) -> bool:
        """Puts files into a file field; False if the element is none."""
        world, label = self._place(label)
        field = await world.handle("fileField", label)
        if field is None:
            return False
        await world.link.send("DOM.setFileInputFiles", files=files, objectId=field)
        await world.link.send("Runtime.releaseObject", objectId=field)
        return True

    def _place(self, label: int) -> tuple[World, int]:
        if self._targets is None:
            return self._main, label
        target = self._targets[label]
        return target.worlds[-1], target.label

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the function that it is, in the page's own world; it must be JSON."""
        return await self._link.evaluate(f"(() => {{ const value = (\n{expression}\n); return {_CALLED}; }})()")

    async def failed(self) -> bool:
        """Whether its document is an error page: the browser's, the proxy's, or that of a site that failed."""
        try:
            return bool(await self.evaluate(_FAILED))
        except (ScriptError, DocumentReplacedError):
            return False

    async def finish(self, bound: float, options: dict[str, Any] | None) -> dict[str, Any]:
        """Waits until the page is quiet, at most `bound` seconds, and reads it (see world.js); None: only waits."""
        deadline = time.monotonic() + bound
        started = time.monotonic()
        waited_for = ""
        if options is not None and options["axtree"]:
            self._main.need_axtree()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                over = self._loading.over
                still = await self._frames.settle(left) if self._targets is not None else True
                left = max(0.0, deadline - time.monotonic())
                # The script keeps its own bound; ours covers a document that is replaced again and again.
                seen: dict[str, Any] = await self.call("finish", left * 1000, options)
            except DocumentReplacedError:
                waited_for = "loading"
                await self.idle(deadline)
                continue
            # What the page does with an answer that came while it was asked has yet to be waited for.
            if not (self._loading.busy or self._loading.over > over) or time.monotonic() >= deadline:
                seen["quiet"] = bool(seen["quiet"]) and still and not self._loading.busy
                seen["waitedFor"] = "loading" if self._loading.busy or waited_for else seen["waitedFor"]
                seen["settleMs"] = (time.monotonic() - started) * 1000 - seen["observeMs"]
                await self._read_frames(seen, options)
                self._loading.end()
                return seen
            waited_for = "loading"
            await self.idle(deadline)

    async def _read_frames(self, seen: dict[str, Any], options: dict[str, Any] | None) -> None:
        """Puts what frames show into what the page shows."""
        if options is not None and not (options["text"] or options["axtree"] or options["boxes"]):
            return
        self._targets = None
        if options is None or not seen.get("frames"):
            self._frames.forget()
            return
        started = time.monotonic()
        reading = await self._frames.read(seen, options)
        seen["text"], self._targets, boxes = compose(reading)
        if "axtree" in seen:
            seen["axtree"] = compose_tree(reading, self._targets)
        if "boxes" in seen:
            seen["boxes"] = boxes
        seen["labels"] = len(self._targets)
        seen["truncated"] = reading.truncated
        seen["observeMs"] += (time.monotonic() - started) * 1000

    @property
    def frame(self) -> str:
        """The id of its main frame."""
        return self._main.frame

    async def context_id(self) -> str:
        """The id of its browser context in the protocol."""
        told = await self._link.send("Target.getTargetInfo")
        return str(told["targetInfo"]["browserContextId"])

    async def history(self, step: int) -> bool:
        """Goes back or forward in the tab's history; False if there is no such page."""
        history = await self._link.send("Page.getNavigationHistory")
        index = history["currentIndex"] + step
        if not self.first_entry <= index < len(history["entries"]):
            return False
        await self._link.send("Page.navigateToHistoryEntry", entryId=history["entries"][index]["id"])
        return True

    async def goto(self, url: str) -> str:
        """Begins to load an address; why it did not, or nothing."""
        answer = await self._link.send("Page.navigate", url=url)
        # A download, or an answer without content, leaves the page where it is.
        return "" if answer.get("isDownload") else str(answer.get("errorText", ""))

    async def stop_loading(self) -> None:
        """Gives up on what the page loads."""
        await self._link.send("Page.stopLoading")

    async def start_history_here(self) -> None:
        """No going back beyond the page that is shown now: what an earlier session left in the history is gone."""
        # A full history would drop a page for each new one, and no place in it would stay what it was.
        await self._link.send("Page.resetNavigationHistory")
        history = await self._link.send("Page.getNavigationHistory")
        self.first_entry = history["currentIndex"]

    async def wipe(self, origin: str) -> None:
        """Removes what a session left in the page's tab and origin."""
        await self.call("wipe")
        await self._link.send("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.origins.clear()
        self._loading.begin_anew()

    async def wait_closed(self, bound: float) -> None:
        """Waits until a page that closed itself is gone."""
        try:
            async with asyncio.timeout(bound):
                while not self.gone():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def idle(self, deadline: float) -> None:
        """Waits until nothing is loading any more, or the deadline has passed."""
        while self._loading.busy and not self.gone():
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return

    # ---- events --------------------------------------------------------------------------------------------------
    def _listen(self, link: Link) -> None:
        on = link.cdp.on
        loading = self._loading
        on("Page.frameStartedLoading", lambda event: self._begun_loading(event["frameId"]))
        on("Page.frameRequestedNavigation", self._navigation_requested)
        on("Page.frameStoppedLoading", lambda event: loading.navigated(event["frameId"]))
        on("Page.frameDetached", lambda event: loading.navigated(event["frameId"]))
        on("Page.frameNavigated", lambda event: self._navigated(event, link))
        on("Page.windowOpen", self._window_opened)
        on("Network.requestWillBeSent", self._request_begun)
        on("Network.loadingFinished", lambda event: loading.requested(event["requestId"]))
        on("Network.loadingFailed", lambda event: loading.requested(event["requestId"]))
        on("Network.responseReceived", self._request_answered)

    def _navigation_requested(self, event: dict[str, Any]) -> None:
        if event.get("disposition", "currentTab") == "currentTab":
            self._begun_loading(event["frameId"])

    def _request_begun(self, event: dict[str, Any]) -> None:
        # A frame's own document may move to another process, which then tells of its end; the frame's loading is known.
        if event.get("type") != "Document" or event.get("frameId") == self._main.frame:
            self._loading.request(event)

    def _request_answered(self, event: dict[str, Any]) -> None:
        if event.get("type") == "Document":
            headers = {name.lower(): value for name, value in event["response"]["headers"].items()}
            attached = headers.get("content-disposition", "").strip().lower().startswith("attachment")
            kind = event["response"]["mimeType"]
            self.files_answered += attached or (bool(kind) and not kind.startswith(_SHOWN))

    def _begun_loading(self, frame: str) -> None:
        self._loading.navigation(frame, is_page=frame == self._main.frame)

    def _navigated(self, event: dict[str, Any], link: Link) -> None:
        parts = urlsplit(event["frame"]["url"])
        self.origins.add(f"{parts.scheme}://{parts.netloc}" if parts.netloc else "null")
        frame = event["frame"]["id"]
        if link is self._link and "parentId" not in event["frame"]:
            self._main.forget()
            self._main.frame = frame
            self._loading.new_page()
        else:
            self._frames.forget_frame(frame)

    def _window_opened(self, event: dict[str, Any]) -> None:
        self.popups += 1
        self.addressed_popups += event.get("url", "") not in {"", "about:blank"}

    def _crash(self, _page: Page) -> None:
        self.crashed = True
        self._link.crash()
        self._changed.set()
        self._tell_crash()
