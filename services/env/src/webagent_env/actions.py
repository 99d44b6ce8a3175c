"""What an agent can do, as values. `Rejected` is what stands in an action's place when it is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Click:
    """Clicks the element's centre."""

    element: str


@dataclass(frozen=True, slots=True)
class RightClick:
    """Clicks the element's centre with the secondary button."""

    element: str


@dataclass(frozen=True, slots=True)
class Type:
    """Replaces the element's text."""

    element: str
    text: str


@dataclass(frozen=True, slots=True)
class Search:
    """Types, then presses Enter."""

    element: str
    text: str


@dataclass(frozen=True, slots=True)
class Hover:
    """Moves the pointer onto the element."""

    element: str


@dataclass(frozen=True, slots=True)
class ScrollUp:
    """Scrolls up by two thirds of the viewport."""


@dataclass(frozen=True, slots=True)
class ScrollDown:
    """Scrolls down by two thirds of the viewport."""


@dataclass(frozen=True, slots=True)
class PressEnter:
    """Presses Enter wherever the focus is."""


@dataclass(frozen=True, slots=True)
class SwitchTab:
    """Turns to another tab, counted from 0."""

    tab: int


@dataclass(frozen=True, slots=True)
class SelectDropdownOption:
    """Picks an option of a dropdown by its text."""

    element: str
    option: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Lets the page work for one second."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Ends the episode; the message is the answer."""

    message: str


@dataclass(frozen=True, slots=True)
class GoBackward:
    """One page back in the tab's history."""


@dataclass(frozen=True, slots=True)
class GoForward:
    """One page forward in the tab's history."""


@dataclass(frozen=True, slots=True)
class PressKey:
    """Presses a key, such as "Control+a", wherever the focus is."""

    key: str


@dataclass(frozen=True, slots=True)
class Goto:
    """Opens an address in the active tab."""

    url: str


@dataclass(frozen=True, slots=True)
class File:
    """A file that the caller gives. An empty media type is guessed from the name."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Upload:
    """Gives files to a file field."""

    element: str
    files: tuple[File, ...]


Action = (
    Click
    | RightClick
    | Type
    | Search
    | Hover
    | ScrollUp
    | ScrollDown
    | PressEnter
    | SwitchTab
    | SelectDropdownOption
    | Wait
    | Exit
    | GoBackward
    | GoForward
    | PressKey
    | Goto
    | Upload
)


class Reason(Enum):
    """Why an action was rejected or failed."""

    MALFORMED = "malformed"
    UNKNOWN_ACTION = "unknown action"
    BAD_ARGUMENT = "bad argument"
    UNKNOWN_ELEMENT = "unknown element"
    NOT_INTERACTABLE = "not interactable"
    NO_SUCH_OPTION = "no such option"
    NOWHERE_TO_GO = "nowhere to go"
    NOT_ALLOWED = "not allowed"
    ELEMENT_GONE = "element gone"
    ELEMENT_COVERED = "element covered"
    OPTION_DISABLED = "option disabled"
    TOO_LONG = "too long"
    NOT_LOADED = "not loaded"


@dataclass(frozen=True, slots=True)
class Rejected:
    """No action, and why; the message is for the agent to read."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The page did not let the action happen."""

    reason: Reason
    message: str
