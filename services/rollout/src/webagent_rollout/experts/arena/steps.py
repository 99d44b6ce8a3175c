"""What the experts of the arena's sites share: reading a page by its headings and labels, and notes to themselves.

An expert goes by the page that it sees, so a step that went wrong is simply done again. What it must remember from one
page to another it notes in its own actions, as a comment line before them.
"""

from __future__ import annotations

import json
import re

from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import (
    ExpertLost,
    Turn,
    click,
    click_or_scroll,
    labelled,
    select,
    type_text,
)

NOT_POSSIBLE = "N/A"
# Places in a list that is sorted by how many there are of something, as instructions name them.
RANKS = ("most", "second most", "third most", "fourth most", "fifth most", "sixth most", "seventh most")
_LINKS = ("a", "button", "details")
_CONTROLS = ("input", "select", "textarea")
_NOTE = re.compile(r"^# Note: (\w+) = (.*)$", re.MULTILINE)


def answer(text: str) -> str:
    """Ends the episode with an answer."""
    return f"exit(message={json.dumps(text, ensure_ascii=False)})"


DONE = answer("done")


def heading(turn: Turn) -> str:
    """The page's title."""
    return next((element.text for element in turn.page.elements if element.tag == "h1"), "")


def link(turn: Turn, text: str) -> str:
    """Clicks the link or button with this text, scrolling down to it where needed."""
    return click_or_scroll(turn, labelled(turn, text, *_LINKS), text)


def link_like(turn: Turn, beginning: str) -> str:
    """The same for a link whose text begins so."""
    found = [each for each in turn.page.tagged("a", "button") if each.text.startswith(beginning)]
    return click_or_scroll(turn, found, beginning)


def shown(turn: Turn, text: str) -> bool:
    """Whether the page has a link or button with this text."""
    return bool(labelled(turn, text, *_LINKS))


def control(turn: Turn, label: str) -> Element:
    """The field or dropdown that follows a label."""
    for element in turn.page.numbered:
        if element.tag in _CONTROLS and (
            element.lead[-1:] == (label,) or element.attributes.get("placeholder") == label
        ):
            return element
    raise ExpertLost(f"the page has no field {label!r}")


def search(turn: Turn, label: str, text: str) -> str:
    """Types into a search field and presses Enter."""
    number = control(turn, label).number
    return f'do(action="Search", argument={json.dumps(text, ensure_ascii=False)}, element="{number}")'


def fill(turn: Turn, wanted: dict[str, str], button: str) -> str:
    """Fills the fields in and chooses in the dropdowns, by their labels and in this order; then presses the button."""
    for label, text in wanted.items():
        element = control(turn, label)
        if element.tag == "select" and element.chosen != (text,):
            return select(element, text)
        if element.tag != "select" and element.value != text:
            return type_text(element, text)
    return link(turn, button)


def read(turn: Turn, pattern: str) -> str:
    """The group of a pattern in the page's text; ExpertLost if it is not there."""
    found = re.search(pattern, turn.page.text)
    if found is None:
        raise ExpertLost(f"the page does not say {pattern!r}")
    return found[1]


def beside(element: Element) -> str:
    """All text between an element and the next one that can be clicked."""
    return " ".join(element.trail)


def found_by_search(turn: Turn, label: str, words: str, results: str, page: str) -> str | None:
    """Searches, then opens what it finds; says that it is not there if so; None on the page itself."""
    if heading(turn) == page:
        return None
    if heading(turn) != results:
        return search(turn, label, words)
    return link(turn, words) if shown(turn, words) else answer(NOT_POSSIBLE)


def row_of(turn: Turn, text: str) -> Element | None:
    """The link whose row has this text after it; None if no row has."""
    return next((each for each in turn.page.tagged("a") if text in each.trail), None)


def through_pages(turn: Turn, found: Element | None) -> str:
    """Clicks what was found in a list, else goes to the list's next page; after the last one it is not possible."""
    if found is not None:
        return click(found)
    return link(turn, "Next") if shown(turn, "Next") else answer(NOT_POSSIBLE)


def page_of(turn: Turn) -> tuple[int, int]:
    """Which page of a list this is, and how many there are."""
    found = re.search(r"Page (\d+) of (\d+)", turn.page.text)
    return (int(found[1]), int(found[2])) if found else (1, 1)


def note(name: str, value: str, action: str) -> str:
    """The action, with a note before it."""
    return f"# Note: {name} = {value}\n{action}"


def noted(turn: Turn, name: str) -> str | None:
    """What was noted last under a name."""
    found = [value for action in turn.past for key, value in _NOTE.findall(action) if key == name]
    return found[-1] if found else None


def switch(number: int) -> str:
    """Turns to another tab."""
    return f'do(action="Switch Tab", argument="{number}")'
