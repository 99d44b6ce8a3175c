"""What a session shows of its page."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape


class Kind(Enum):
    """One part of an observation."""

    SIMPLIFIED_HTML = "simplified html"
    SCREENSHOT = "screenshot"


@dataclass(frozen=True, slots=True)
class Tab:
    """One open tab."""

    url: str
    title: str
    active: bool


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


@dataclass(frozen=True, slots=True)
class View:
    """How a session's pages are read."""

    kinds: frozenset[Kind]
    max_bytes: int
    omit_attributes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def script_options(self) -> dict[str, object]:
        """The options of `observe` in observation.js."""
        return {
            "maxBytes": self.max_bytes,
            "omitAttributes": list(self.omit_attributes),
            "hidden": list(self.hidden),
            "text": Kind.SIMPLIFIED_HTML in self.kinds,
        }

    def of(self, kinds: frozenset[Kind]) -> View:
        """The same view of other parts; none asked for means the session's own."""
        return replace(self, kinds=kinds) if kinds else self


@dataclass(frozen=True, slots=True)
class Dialog:
    """A JavaScript dialog that was answered on the agent's behalf."""

    kind: str
    message: str
    answer: str

    def as_html(self) -> str:
        """One line for the observation; the page's words stay text."""
        message = " ".join(self.message.split())[:500]
        return f'<dialog type="{escape(self.kind)}" data-status="{self.answer}">{escape(message, quote=False)}</dialog>'


@dataclass(slots=True)
class Timings:
    """Where a step's time went, in seconds, and whether the page was quiet in the end."""

    act: float = 0.0
    settle: float = 0.0
    observe: float = 0.0
    quiet: bool = field(default=True)
