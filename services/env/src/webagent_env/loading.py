"""What a tab is loading on behalf of the action: its requests and navigations, from begin to end.

A page that polls begins requests for ever. A request counts as a poll, and keeps no step waiting, once an equal one
was begun while no action was under way; however often an action begins equal ones, all of them are its own. Equal means
the same method, address and body but for their digits, so that a counter or the time in it makes no difference.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

# Streams stay open as long as the page does; a page that has one is quiet all the same.
_ENDLESS = {"EventSource", "WebSocket", "Ping", "Media"}
_BY_SCRIPTS = {"Fetch", "XHR", "Script", "Image", "Other"}
_REPEATS = 3
_MOST_POLLS = 1000
_MOST_FRAME_LOADS = 50
_DIGITS = re.compile(r"\d+")


class Loading:
    """The requests and navigations of one tab that are in flight."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.over = 0  # requests of actions that have ended
        self._navigations: set[str] = set()
        self._requests: set[str] = set()
        self._acting = True  # the tab's first page is an action's, too
        self._frames = 0  # loads of frames since the action began or ended
        self._restless = False
        self._polls: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether something begun by the action is still loading."""
        return bool(self._navigations or self._requests)

    def begin(self) -> None:
        """An action begins: what loads from now on belongs to it."""
        self._restless = not self._acting and self._frames >= _REPEATS
        self._frames = 0
        self._acting = True
        self._navigations.clear()
        self._requests.clear()

    def begin_anew(self) -> None:
        """The tab was wiped: its next page is an action's, as its first was, and no poll is known."""
        self._acting = True
        self.begin()
        self._polls.clear()

    def end(self) -> None:
        """The action's page was read: what loads from now on belongs to nobody."""
        self._acting = False
        self._frames = 0

    def new_page(self) -> None:
        """The tab shows another page, which the requests of the one before do not concern."""
        self._requests.clear()

    def navigation(self, frame: str, *, is_page: bool) -> None:
        """A frame begins to load."""
        if not is_page:
            self._frames += 1
            # A page that fills frames again and again, asked or not, will not stop for this action.
            if self._restless or self._frames > _MOST_FRAME_LOADS:
                return
        self._navigations.add(frame)

    def navigated(self, frame: str) -> None:
        """A frame loads no more."""
        self._navigations.discard(frame)
        self.changed.set()

    def request(self, event: dict[str, Any]) -> None:
        """A request is about to be sent."""
        if event.get("type") in _ENDLESS:
            return
        if event.get("type") in _BY_SCRIPTS:
            request = event["request"]
            key = _DIGITS.sub("#", f"{request['method']} {request['url']} {request.get('postData', '')}"[:2000])
            if not self._acting and len(self._polls) < _MOST_POLLS:
                self._polls.add(key)
            if key in self._polls:
                return
        if self._acting:
            self._requests.add(event["requestId"])

    def requested(self, request: str) -> None:
        """A request ended, well or not."""
        if request in self._requests:
            self._requests.remove(request)
            self.over += 1
        self.changed.set()
