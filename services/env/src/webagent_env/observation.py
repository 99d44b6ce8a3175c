"""What a session shows of its page."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape
from typing import Any

# The last line of a text that was cut; no text of a page holds a line break. observation.js writes the same.
CUT_HERE = "\n(page cut here: it is longer than an observation may be)"
_TOKEN = re.compile(r"[^\W_]{1,4}|[^\w\s]|_")
_OPEN_ENTITY = re.compile(r"&[a-z]*$")


class Kind(Enum):
    """One part of an observation."""

    SIMPLIFIED_HTML = "simplified html"
    AXTREE = "axtree"
    SCREENSHOT = "screenshot"
    MARKED_SCREENSHOT = "marked screenshot"


@dataclass(frozen=True, slots=True)
class Tab:
    """One open tab."""

    url: str
    title: str
    active: bool


@dataclass(frozen=True, slots=True)
class Dialog:
    """A JavaScript dialog that was answered on the agent's behalf; the message is one short line."""

    kind: str
    message: str
    answer: str

    def as_html(self) -> str:
        """One line for the observation; the page's words stay text."""
        head = f'<dialog type="{escape(self.kind)}" data-status="{self.answer}">'
        return f"{head}{escape(self.message, quote=False)}</dialog>"

    def as_line(self) -> str:
        """One line for the tree of roles."""
        return f"dialog {json.dumps(self.message, ensure_ascii=False)} {self.kind}, {self.answer}"


class DownloadState(Enum):
    """How far a download came."""

    RUNNING = "running"
    COMPLETED = "completed"
    # Cancelled by the page or the site, or broken off.
    FAILED = "failed"
    # Cancelled by this service, because of a bound.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Download:
    """A file that the page gave away, as far as it came. Name and address are the site's words."""

    name: str
    url: str
    size: int = 0
    state: DownloadState = DownloadState.RUNNING
    why: str = ""

    def as_html(self) -> str:
        """One line for the observation; the site's words stay text."""
        return f'<download data-status="{self.state.value}">{escape(self._words(), quote=False)}</download>'

    def as_line(self) -> str:
        """One line for the tree of roles."""
        return f"download {json.dumps(self._words(), ensure_ascii=False)} {self.state.value}"

    def _words(self) -> str:
        return " ".join(f"{self.name} ({self.why})".split()) if self.why else self.name


@dataclass(frozen=True, slots=True)
class Observation:
    """The page at one moment. `labels` is how many elements are numbered, from 0."""

    text: str = ""
    truncated: bool = False
    labels: int = 0
    url: str = ""
    title: str = ""
    tabs: tuple[Tab, ...] = ()
    screenshot: bytes = b""
    axtree: str = ""
    axtree_truncated: bool = False
    marked_screenshot: bytes = b""
    dialogs: tuple[Dialog, ...] = ()
    downloads: tuple[Download, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """How a session's pages are read."""

    kinds: frozenset[Kind]
    max_bytes: int
    omit_attributes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    max_tokens: int = 0
    centres_only: bool = False

    def script_options(self) -> dict[str, Any]:
        """The options of `observe` in world.js."""
        return {
            "maxBytes": self.max_bytes,
            "omitAttributes": list(self.omit_attributes),
            "hidden": list(self.hidden),
            "text": Kind.SIMPLIFIED_HTML in self.kinds,
            "axtree": Kind.AXTREE in self.kinds,
            "boxes": Kind.MARKED_SCREENSHOT in self.kinds,
            "centresOnly": self.centres_only,
        }

    @property
    def numbered(self) -> bool:
        """Whether it shows the numbers of elements."""
        return self.kinds != {Kind.SCREENSHOT}

    def of(self, kinds: frozenset[Kind]) -> View:
        """The same view of other parts; none asked for means the session's own."""
        return replace(self, kinds=kinds) if kinds else self


@dataclass(slots=True)
class Timings:
    """Where a step's time went, in seconds, and whether the page was quiet in the end."""

    act: float = 0.0
    settle: float = 0.0
    observe: float = 0.0
    quiet: bool = field(default=True)
    waited_for: str = ""


def bounded(text: str, view: View, *, already_cut: bool, markup: bool) -> tuple[str, bool]:
    """A text within a view's bounds in bytes and tokens, and whether anything was cut; the last line then says so."""
    room = view.max_bytes
    if len(text) * 4 > room and len(text.encode()) > room:
        text, already_cut = _cut(text, _fitting(text, room - len(CUT_HERE.encode())), markup), True
    if view.max_tokens and len(text) > view.max_tokens:
        for number, token in enumerate(_TOKEN.finditer(text), 1):
            if number > view.max_tokens:
                return _cut(text, token.start(), markup), True
    return text, already_cut


def _fitting(text: str, room: int) -> int:
    return len(text.encode()[: max(0, room)].decode(errors="ignore"))


def _cut(text: str, end: int, markup: bool) -> str:
    """The text up to `end`, back to where no tag, entity or line is open, and the line that says so."""
    text = text[:end].removesuffix(CUT_HERE)
    if not markup:
        text = text[: max(0, text.rfind("\n"))]
    elif text.rfind("<") > text.rfind(">"):
        text = text[: text.rfind("<")]
    else:
        text = _OPEN_ENTITY.sub("", text)
    return text + CUT_HERE
