"""The frames of a page: found, settled, read in their place, and pointed at through the pages around them.

A page without frames costs nothing here: world.js says in its one answer that it has none. Else each frame that can be
seen is read by a world of its own, in its own process where it has one (another site, a sandbox), and its text is put
in place of the mark that the page around it left. Numbers are given in document order over all of them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from playwright.async_api import Error, Frame, Page

from webagent_env.cdp import DocumentReplacedError, Link, PageGoneError, ScriptError, World

log = structlog.get_logger()

_MOST_FRAMES = 50
_DEEPEST = 8
# A frame that does not answer is left out rather than waited for: its page can be read without it.
_FRAME_SECONDS = 2.0
_ALL_FRAMES_SECONDS = 4.0
_NUMBERED = re.compile(
    r"<i?frame(?P<own> id=\"\d+\")?(?P<rest>[^>]*)>\x01(?P<frame>\d+)\x01|<(?P<name>[^\s<>\"]+) id=\"(?P<label>\d+)\""
)
_TREE_LINE = re.compile(r"^(?P<indent> *)(?:\[(?P<label>\d+)\] |\x01(?P<frame>\d+)\x01)", re.MULTILINE)


@dataclass(slots=True)
class Reading:
    """What one document showed: the answer of world.js, and the same of the frames in it."""

    world: World
    seen: dict[str, Any]
    frames: list[Reading | None] = field(default_factory=list)

    @property
    def truncated(self) -> bool:
        """Whether something of it was cut."""
        return bool(self.seen["truncated"]) or any(inner.truncated for inner in self.frames if inner is not None)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a numbered element is: the documents from the page down to its own, and its number there."""

    worlds: tuple[World, ...]
    through: tuple[int, ...]
    label: int


class Frames:
    """The frames of one tab. `listen` hears the events of a frame that has a process of its own."""

    def __init__(self, page: Page, main: World, gone: Callable[[], bool], listen: Callable[[Link], None]) -> None:
        self._page = page
        self._main = main
        self._gone = gone
        self._listen = listen
        self._links: dict[Frame, tuple[Link, str]] = {}
        self._worlds: dict[str, World] = {}

    def forget(self) -> None:
        """The tab shows another page."""
        self._worlds.clear()

    def forget_frame(self, frame: str) -> None:
        """A frame shows another document."""
        if frame in self._worlds:
            self._worlds[frame].forget()

    async def begin(self) -> None:
        """An action begins, for the frames that were seen."""
        await asyncio.gather(*(self._patiently(world.call("begin", None, False)) for world in self._worlds.values()))

    async def settle(self, bound: float) -> bool:
        """Waits until the frames that were seen are quiet."""
        known = list(self._worlds.items())
        waits = [self._patiently(w.call("finish", bound * 1000, None, True), bound + 1) for _, w in known]
        answers = await asyncio.gather(*waits)
        # One that gave no answer is not waited for again.
        self._worlds = {frame: w for (frame, w), answer in zip(known, answers, strict=True) if answer is not None}
        return all(answer is None or answer["quiet"] for answer in answers)

    async def read(self, seen: dict[str, Any], options: dict[str, Any]) -> Reading:
        """Reads all frames that can be seen in a page that has just been read."""
        deadline = time.monotonic() + _ALL_FRAMES_SECONDS
        found: dict[str, World] = {}
        reading = await self._read(Reading(self._main, seen), options, deadline, found, 0)
        self._worlds = found
        return reading

    async def _read(
        self, reading: Reading, options: dict[str, Any], deadline: float, found: dict[str, World], depth: int
    ) -> Reading:
        room = options["maxBytes"] - len(reading.seen["text"])
        for number, part in enumerate(reading.seen.get("frames", ())):
            inner = None
            bound = min(_FRAME_SECONDS, deadline - time.monotonic())
            if depth < _DEEPEST and len(found) < _MOST_FRAMES and room > 0 and bound > 0:
                asked = {**options, "view": part["view"], "maxBytes": room, "text": True}
                inner = await self._patiently(self._read_frame(reading.world, number, asked, bound, found), bound)
            if inner is not None:
                inner = await self._read(inner, options, deadline, found, depth + 1)
                room -= len(inner.seen["text"])
            reading.frames.append(inner)
        return reading

    async def _read_frame(
        self, around: World, number: int, options: dict[str, Any], bound: float, found: dict[str, World]
    ) -> Reading:
        element = await around.handle("frame", number)
        node = await around.link.send("DOM.describeNode", objectId=element)
        await around.link.send("Runtime.releaseObject", objectId=element)
        frame = str(node["node"].get("frameId", ""))
        if not frame:
            raise DocumentReplacedError("the frame is gone")
        world = self._worlds.get(frame) or World(around.link, frame)
        if world.link.closed:
            world = World(around.link, frame)
        try:
            try:
                seen = await self._finish(world, options, bound)
            except ScriptError:
                # The frame is not in this process.
                world = World(await self._link(frame), frame)
                seen = await self._finish(world, options, bound)
        except DocumentReplacedError:
            world.forget()
            seen = await self._finish(world, options, bound)
        found[frame] = world
        return Reading(world, seen)

    async def _finish(self, world: World, options: dict[str, Any], bound: float) -> dict[str, Any]:
        if options["axtree"]:
            world.need_axtree()
        try:
            async with asyncio.timeout(bound * 0.7):
                return dict(await world.call("finish", bound * 500, options, True))
        except TimeoutError:
            # It is busy for longer than a frame is waited for.
            return dict(await world.call("observe", options))

    async def _link(self, frame: str) -> Link:
        self._links = {f: known for f, known in self._links.items() if not f.is_detached() and not known[0].closed}
        for link, root in self._links.values():
            if root == frame:
                return link
        for candidate in self._page.frames:
            if candidate is self._page.main_frame or candidate in self._links:
                continue
            try:
                cdp = await self._page.context.new_cdp_session(candidate)
            except Error:
                continue  # it lives in the process of the frame around it
            link = Link(cdp, self._gone, is_page=False)
            self._listen(link)
            answers = await asyncio.gather(
                link.send("Page.getFrameTree"), link.send("Page.enable"), link.send("Network.enable")
            )
            root = str(answers[0]["frameTree"]["frame"]["id"])
            self._links[candidate] = (link, root)
            if root == frame:
                return link
        raise DocumentReplacedError("the frame is gone")

    async def _patiently(self, asking: Awaitable[Any], bound: float = _FRAME_SECONDS) -> Any:
        """The answer, or None if the frame gives none: it went away, or it hangs."""
        try:
            async with asyncio.timeout(bound):
                return await asking
        except (DocumentReplacedError, ScriptError, TimeoutError) as error:
            log.debug("frame_not_read", error=repr(error))
            return None
        except PageGoneError:
            if self._gone():
                raise
            return None


def compose(reading: Reading) -> tuple[str, list[Target], list[list[float]]]:
    """The text of a page with its frames in place, what its numbers stand for, and where those elements are drawn."""
    targets: list[Target] = []
    boxes: list[list[float]] = []

    def text_of(one: Reading, worlds: tuple[World, ...], through: tuple[int, ...], place: tuple[float, ...]) -> str:
        def number(label: int) -> int:
            targets.append(Target(worlds, through, label))
            if "boxes" in one.seen:
                boxes.append(_placed(one.seen["boxes"][label], place))
            return len(targets) - 1

        def replaced(match: re.Match[str]) -> str:
            if match["frame"] is None:
                return f'<{match["name"]} id="{number(int(match["label"]))}"'
            index = int(match["frame"])
            tag = match[0][1 : match[0].index("frame") + 5]
            inner, part = one.frames[index], one.seen["frames"][index]
            if inner is None or not _labels(inner):
                own = "" if match["own"] is None else f' id="{number(int(match["own"][5:-1]))}"'
                content = "" if inner is None else inner.seen["text"].replace("\x01", "")
                return f"<{tag}{own}{match['rest']}>{content}"
            x, y, scale = place
            there = (x + part["x"] * scale, y + part["y"] * scale, scale * part["scale"])
            return f"<{tag}{match['rest']}>" + text_of(inner, (*worlds, inner.world), (*through, index), there)

        return _NUMBERED.sub(replaced, one.seen["text"])

    text = text_of(reading, (reading.world,), (), (0.0, 0.0, 1.0))
    return text, targets, boxes


def compose_tree(reading: Reading, targets: list[Target]) -> str:
    """The same for the tree of roles, whose numbers are those of the text."""
    numbers = {(target.worlds[-1], target.label): number for number, target in enumerate(targets)}

    def tree_of(one: Reading, indent: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match["frame"] is None:
                number = numbers.get((one.world, int(match["label"])))
                return match["indent"] + (f"[{number}] " if number is not None else "")
            inner = one.frames[int(match["frame"])]
            return "" if inner is None else tree_of(inner, match["indent"])

        tree = _TREE_LINE.sub(replaced, one.seen["axtree"])
        return "\n".join(indent + line for line in tree.split("\n")) if indent else tree

    return "\n".join(line for line in tree_of(reading, "").split("\n") if line.strip())


def _labels(reading: Reading) -> int:
    return int(reading.seen["labels"]) + sum(_labels(inner) for inner in reading.frames if inner is not None)


def _placed(box: list[float], place: tuple[float, ...]) -> list[float]:
    x, y, scale = place
    return [x + box[0] * scale, y + box[1] * scale, x + box[2] * scale, y + box[3] * scale]
