"""One tab: what it is loading, and the two scripts that run in it.

quiet.js runs in the page's own world from document start; observation.js runs in a world beside it that the page
cannot see, and is put there again after each navigation. Both are called over one CDP session, whose events also tell
which requests and navigations are in flight. `finish` answers once the page is quiet: nothing begun by the action is
loading, and quiet.js agrees; or once its bound is reached.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import CDPSession, Error, Page

# Streams stay open as long as the page does; a page that has one is quiet all the same.
_ENDLESS_REQUESTS = {"EventSource", "WebSocket", "Ping", "Media"}
# What Chromium says when a document goes away under a script. A page that closed may be called that, too.
_REPLACED = ("context with specified id", "context was destroyed", "navigated or closed", "Promise was collected")
_CALLED = 'typeof value === "function" ? value() : value'
# Names the events between the two worlds; a page that knew it could pretend to be quiet, and no more than that.
CHANNEL = f"w{secrets.token_hex(8)}"


class PageGoneError(Exception):
    """The tab was closed or its process died."""


class DocumentReplacedError(Exception):
    """The document went away while a script ran in it."""


class ScriptError(Exception):
    """A script threw; the message is the page's."""


@cache
def script(name: str) -> str:
    """The source of a script that runs in pages: one function expression."""
    return resources.files("webagent_env").joinpath("scripts", name).read_text(encoding="utf-8")


def page_script(ended: str) -> str:
    """The init script of a context; `ended` is a JavaScript function that says whether the task's page ended it."""
    return f"({script('quiet.js')})({{channel: {json.dumps(CHANNEL)}, ended: {ended}}})"


class Tab:
    """One page of a session. Created by `attach`."""

    def __init__(self, page: Page, cdp: CDPSession) -> None:
        self.page = page
        self.first_entry = 0
        self.crashed = False
        self.origins: set[str] = set()
        self._cdp = cdp
        self._frame = ""
        self._context: int | None = None
        self._loading: set[str] = set()
        self._requests: set[str] = set()
        self._sending: set[asyncio.Future[Any]] = set()
        self._changed = asyncio.Event()
        self.popups = 0

    @classmethod
    async def attach(cls, page: Page) -> Tab:
        """Opens the CDP session of a page and listens to it."""
        try:
            cdp = await page.context.new_cdp_session(page)
            tab = cls(page, cdp)
            tab._listen()
            answers = await asyncio.gather(
                cdp.send("Page.getFrameTree"), cdp.send("Page.enable"), cdp.send("Network.enable")
            )
        except Error as error:
            raise PageGoneError(error.message) from error
        tab._frame = answers[0]["frameTree"]["frame"]["id"]
        return tab

    @property
    def busy(self) -> bool:
        """Whether something begun by the action is still loading."""
        return bool(self._loading or self._requests)

    def gone(self) -> bool:
        """Whether nothing can be asked of the page any more."""
        return self.crashed or self.page.is_closed()

    async def begin(self, label: int | None, *, typing: bool = False) -> Any:
        """An action begins: what loads from now on belongs to it. Returns where to point, or {"failed": why}."""
        self._loading.clear()
        self._requests.clear()
        self.popups = 0
        return await self.call("begin", label, typing)

    async def call(self, function: str, *arguments: object) -> Any:
        """Calls a function of observation.js, putting the script into a new document first."""
        call = f"webagent.{function}({', '.join(json.dumps(argument) for argument in arguments)})"
        if self._context is None:
            world = await self._send("Page.createIsolatedWorld", frameId=self._frame, worldName=CHANNEL)
            self._context = world["executionContextId"]
            call = f"({script('observation.js')})({json.dumps(CHANNEL)}); {call}"
        return await self._evaluate(call, contextId=self._context)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the function that it is, in the page's own world; it must be JSON."""
        return await self._evaluate(f"(() => {{ const value = (\n{expression}\n); return {_CALLED}; }})()")

    async def finish(self, bound: float, options: dict[str, object] | None) -> dict[str, Any]:
        """Waits until the page is quiet, at most `bound` seconds, and reads it (see observation.js)."""
        deadline = time.monotonic() + bound
        started = time.monotonic()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                # The script keeps its own bound; ours covers a document that is replaced again and again.
                seen: dict[str, Any] = await self.call("finish", left * 1000, options)
            except DocumentReplacedError:
                await self.idle(deadline)
                continue
            if not self.busy or time.monotonic() >= deadline:
                seen["quiet"] = bool(seen["quiet"]) and not self.busy
                seen["settleMs"] = (time.monotonic() - started) * 1000 - seen["observeMs"]
                return seen
            await self.idle(deadline)

    async def history(self, step: int) -> bool:
        """Goes back or forward in the tab's history; False if there is no such page."""
        history = await self._send("Page.getNavigationHistory")
        index = history["currentIndex"] + step
        if not self.first_entry <= index < len(history["entries"]):
            return False
        await self._send("Page.navigateToHistoryEntry", entryId=history["entries"][index]["id"])
        return True

    async def start_history_here(self) -> None:
        """No going back beyond the page that is shown now."""
        history = await self._send("Page.getNavigationHistory")
        self.first_entry = history["currentIndex"]

    async def wipe(self, origin: str) -> None:
        """Removes what a session left in the page's tab and origin."""
        await self.call("wipe")
        await self._send("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.origins.clear()

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
        while self.busy and not self.gone():
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _evaluate(self, expression: str, **target: object) -> Any:
        answer = await self._send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, **target
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptError(details.get("exception", {}).get("description") or details["text"])
        result = answer["result"]
        if "unserializableValue" in result:
            raise ScriptError(f"the value {result['unserializableValue']} is not JSON")
        return result.get("value")

    async def _send(self, method: str, **parameters: object) -> dict[str, Any]:
        if self.gone():
            raise PageGoneError("the page is gone")
        sending = asyncio.ensure_future(self._cdp.send(method, parameters))
        self._sending.add(sending)
        try:
            answer: dict[str, Any] = await sending
        except asyncio.CancelledError:
            if self.crashed:
                raise PageGoneError("the page's process died") from None
            raise
        except Error as error:
            if self.gone():
                raise PageGoneError(error.message) from error
            if any(word in error.message for word in _REPLACED):
                self._context = None
                raise DocumentReplacedError(error.message) from error
            if "closed" in error.message.lower():
                raise PageGoneError(error.message) from error
            raise ScriptError(error.message) from error
        finally:
            self._sending.discard(sending)
        return answer

    # ---- events --------------------------------------------------------------------------------------------------
    def _listen(self) -> None:
        on = self._cdp.on
        on("Page.frameStartedLoading", lambda event: self._begun(self._loading, event["frameId"]))
        on("Page.frameRequestedNavigation", self._navigation_requested)
        on("Page.frameStoppedLoading", lambda event: self._over(self._loading, event["frameId"]))
        on("Page.frameDetached", lambda event: self._over(self._loading, event["frameId"]))
        on("Page.frameNavigated", self._navigated)
        on("Page.windowOpen", self._window_opened)
        on("Network.requestWillBeSent", self._request_begun)
        on("Network.loadingFinished", lambda event: self._over(self._requests, event["requestId"]))
        on("Network.loadingFailed", lambda event: self._over(self._requests, event["requestId"]))
        self.page.on("crash", self._crash)
        self.page.on("close", lambda _: self._changed.set())

    def _begun(self, things: set[str], thing: str) -> None:
        things.add(thing)

    def _over(self, things: set[str], thing: str) -> None:
        things.discard(thing)
        self._changed.set()

    def _navigation_requested(self, event: dict[str, Any]) -> None:
        if event.get("disposition", "currentTab") == "currentTab":
            self._loading.add(event["frameId"])

    def _navigated(self, event: dict[str, Any]) -> None:
        parts = urlsplit(event["frame"]["url"])
        self.origins.add(f"{parts.scheme}://{parts.netloc}" if parts.netloc else "null")
        if "parentId" not in event["frame"]:
            self._context = None
            self._frame = event["frame"]["id"]
            self._requests.clear()

    def _window_opened(self, _event: dict[str, Any]) -> None:
        self.popups += 1

    def _request_begun(self, event: dict[str, Any]) -> None:
        if event.get("type") not in _ENDLESS_REQUESTS:
            self._requests.add(event["requestId"])

    def _crash(self, _page: Page) -> None:
        # A dead process answers nothing, not even with an error.
        self.crashed = True
        for sending in self._sending:
            sending.cancel()
        self._changed.set()
