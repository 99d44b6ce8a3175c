"""What every scripted expert is made of: the turn it sees, the actions it can take, and how it says that it is lost.

An expert reads the instruction, the page and its own past actions, nothing else, and the same three always give the
same action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from webagent_rollout.experts.page import Element, Page, parse

_MOST_SCROLLS = 4
SCROLL_DOWN = 'do(action="Scroll Down")'
WAIT = 'do(action="Wait")'


class ExpertLost(Exception):  # noqa: N818 - an outcome, not an error of the program
    """The page does not show what the script needs."""


class Expert(Protocol):
    """A scripted policy for one task."""

    def __call__(self, instruction: str, observation: str, past_actions: Sequence[str]) -> str:
        """Returns the next action in text form; raises ExpertLost where the script has none."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """What an expert sees."""

    instruction: str
    page: Page
    past: tuple[str, ...]

    @property
    def quoted(self) -> list[str]:
        """The texts in double quotes in the instruction, at least one."""
        texts = re.findall(r'"([^"]*)"', self.instruction)
        if not texts:
            raise ExpertLost("the instruction quotes nothing")
        return texts

    @property
    def moves(self) -> int:
        """How many past actions did more than scroll or wait."""
        return sum(action not in {SCROLL_DOWN, WAIT} for action in self.past)

    def asked(self, pattern: str) -> tuple[str, ...]:
        """The groups of a pattern in the instruction."""
        found = re.search(pattern, self.instruction, re.ASCII)
        if found is None:
            raise ExpertLost(f"the instruction does not match {pattern!r}")
        return found.groups()


Script = Callable[[Turn], str]


@dataclass(frozen=True, slots=True)
class ScriptedExpert:
    """An expert that parses the page and follows a script."""

    script: Script

    def __call__(self, instruction: str, observation: str, past_actions: Sequence[str]) -> str:
        """Returns the script's action for this turn."""
        return self.script(Turn(instruction, parse(observation), tuple(past_actions)))


def click(element: Element) -> str:
    """Clicks an element."""
    return f'do(action="Click", element="{element.number}")'


def hover(element: Element) -> str:
    """Moves the pointer over an element."""
    return f'do(action="Hover", element="{element.number}")'


def type_text(element: Element, text: str) -> str:
    """Replaces a field's text."""
    return f'do(action="Type", argument={json.dumps(text, ensure_ascii=False)}, element="{element.number}")'


def select(element: Element, option: str) -> str:
    """Picks an option of a dropdown."""
    argument = json.dumps(option, ensure_ascii=False)
    return f'do(action="Select Dropdown Option", argument={argument}, element="{element.number}")'


def first(elements: Sequence[Element], what: str) -> Element:
    """The first element, or ExpertLost naming what is missing."""
    return nth(elements, 0, what)


def nth(elements: Sequence[Element], index: int, what: str) -> Element:
    """The element at an index from 0, or ExpertLost naming what is missing."""
    if not 0 <= index < len(elements):
        raise ExpertLost(f"the page shows {len(elements)} of: {what}; number {index + 1} is needed")
    return elements[index]


def scroll(turn: Turn, what: str) -> str:
    """Scrolls down to look for something, a few times in a row at most."""
    if turn.past[-_MOST_SCROLLS:].count(SCROLL_DOWN) == _MOST_SCROLLS:
        raise ExpertLost(f"not on the page, however far it is scrolled: {what}")
    return SCROLL_DOWN


def click_or_scroll(turn: Turn, elements: Sequence[Element], what: str) -> str:
    """Clicks the first of the elements; scrolls down while there is none."""
    return click(elements[0]) if elements else scroll(turn, what)


def labelled(turn: Turn, text: str, *tags: str) -> list[Element]:
    """Numbered elements with exactly this text, of any tag unless some are named."""
    return [element for element in turn.page.numbered if element.text == text and (not tags or element.tag in tags)]


def icons_after(turn: Turn, text: str) -> list[Element]:
    """The numbered elements without text that follow this chunk of text."""
    numbered = turn.page.numbered
    start = next(
        (i for i, element in enumerate(numbered) if element.text == text or text in element.lead), len(numbered)
    )
    return [element for element in numbered[start:] if not element.text]


def press(turn: Turn, text: str) -> str:
    """Clicks the button with this text, scrolling down to it where needed."""
    return click_or_scroll(turn, labelled(turn, text), f"button {text!r}")


def fields(turn: Turn) -> list[Element]:
    """Numbered text fields."""
    return [
        element
        for element in turn.page.tagged("input", "textarea")
        if element.kind not in {"checkbox", "radio", "button", "submit"}
    ]


def fill_then_press(turn: Turn, texts: Sequence[tuple[Element, str]], button: str) -> str:
    """Types each text into its field, in the given order, then clicks the button."""
    for field, text in texts:
        if field.value != text:
            return type_text(field, text)
    return press(turn, button)


def whole_number(text: str) -> int:
    """The number that a text spells in digits."""
    if re.fullmatch(r"-?[0-9]+", text) is None:
        raise ExpertLost(f"no number: {text!r}")
    return int(text)


def ordinal(word: str) -> int:
    """The index from 0 of an ordinal such as "1st"."""
    return whole_number(word[:-2]) - 1
