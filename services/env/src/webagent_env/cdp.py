"""One CDP session with a page or with a frame that has a process of its own, and our scripts in the documents there.

What goes wrong is told apart: the page is gone (`PageGoneError`, a fault of the environment), the document went away
under the call (`DocumentReplacedError`, the caller asks the new one), or a script threw (`ScriptError`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from playwright.async_api import CDPSession, Error

# What Chromium says when a document goes away under a script. A page that closed may be called that, too.
_REPLACED = ("context with specified id", "context was destroyed", "navigated or closed", "Promise was collected")
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


@cache
def world_script(*, axtree: bool = False) -> str:
    """What is put into a document before anything is asked of it."""
    parts = [f"({script('world.js')})({json.dumps(CHANNEL)})", f"({script('observation.js')})(webagent)"]
    if axtree:
        parts.append(f"({script('axtree.js')})(webagent)")
    return "; ".join(parts)


def whole(value: Any) -> Any:
    """JSON without half characters, which scripts let pass for text and no message can hold: each is replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole(key): whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [whole(one) for one in value]
    return value


class Link:
    """A CDP session. `gone` says whether the page is; a frame's own session may end while its page lives."""

    def __init__(self, cdp: CDPSession, gone: Callable[[], bool], *, is_page: bool = True) -> None:
        self.cdp = cdp
        self.closed = False
        self._gone = gone
        self._is_page = is_page
        self._sending: set[asyncio.Future[Any]] = set()
        self._crashed = False

    def crash(self) -> None:
        """The process died: it answers nothing, not even with an error."""
        self._crashed = True
        for sending in self._sending:
            sending.cancel()

    async def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Calls a method of the protocol."""
        if self._crashed or self._gone():
            raise PageGoneError("the page is gone")
        sending = asyncio.ensure_future(self.cdp.send(method, parameters))
        self._sending.add(sending)
        try:
            answer: dict[str, Any] = whole(await sending)
        except asyncio.CancelledError:
            if self._crashed:
                raise PageGoneError("the page's process died") from None
            raise
        except Error as error:
            raise self._told_apart(error) from error
        finally:
            self._sending.discard(sending)
        return answer

    async def evaluate(self, expression: str, **target: object) -> Any:
        """The value of an expression, which must be JSON."""
        answer = await self._evaluate(expression, returnByValue=True, **target)
        result = answer["result"]
        if "unserializableValue" in result:
            raise ScriptError(f"the value {result['unserializableValue']} is not JSON")
        return result.get("value")

    async def handle(self, expression: str, **target: object) -> str | None:
        """A handle of the object that an expression gives, or None if it gives none."""
        answer = await self._evaluate(expression, **target)
        handle = answer["result"].get("objectId")
        return None if handle is None else str(handle)

    async def _evaluate(self, expression: str, **options: object) -> dict[str, Any]:
        answer = await self.send("Runtime.evaluate", expression=expression, awaitPromise=True, **options)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptError(details.get("exception", {}).get("description") or details["text"])
        return answer

    def _told_apart(self, error: Error) -> Exception:
        if self._crashed or self._gone():
            return PageGoneError(error.message)
        if any(word in error.message for word in _REPLACED):
            return DocumentReplacedError(error.message)
        if "closed" in error.message.lower():
            self.closed = True
            return PageGoneError(error.message) if self._is_page else DocumentReplacedError(error.message)
        return ScriptError(error.message)


class World:
    """Our scripts in the document of one frame; put there again after each navigation."""

    def __init__(self, link: Link, frame: str) -> None:
        self.link = link
        self.frame = frame
        self.axtree = False
        self._context: int | None = None

    def need_axtree(self) -> None:
        """From now on the tree of roles is read as well, which has a script of its own."""
        if not self.axtree:
            self.axtree = True
            self._context = None

    def forget(self) -> None:
        """The frame shows another document."""
        self._context = None

    async def call(self, function: str, *arguments: object) -> Any:
        """Calls a function of world.js; its value must be JSON."""
        return await self._in_world(self.link.evaluate, _call(function, arguments))

    async def handle(self, function: str, *arguments: object) -> str | None:
        """The same for a function whose value is an element or null."""
        handle: str | None = await self._in_world(self.link.handle, _call(function, arguments))
        return handle

    async def _in_world(self, evaluate: Callable[..., Any], call: str) -> Any:
        try:
            if self._context is None:
                world = await self.link.send("Page.createIsolatedWorld", frameId=self.frame, worldName=CHANNEL)
                self._context = world["executionContextId"]
                call = f"{world_script(axtree=self.axtree)}; {call}"
            return await evaluate(call, contextId=self._context)
        except DocumentReplacedError:
            self._context = None
            raise


def _call(function: str, arguments: tuple[object, ...]) -> str:
    return f"webagent.{function}({', '.join(json.dumps(argument) for argument in arguments)})"
