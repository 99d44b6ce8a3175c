"""A policy that knows nothing: each action is drawn evenly from all that the page allows.

The floor to measure others against. Episode seed and turn decide the draw, so an evaluation of it can be repeated.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from webagent_rollout.experts.page import Page, parse
from webagent_rollout.experts.script import SCROLL_DOWN, click, select, type_text

LEAVE = 'exit(message="")'
BACK = "go_backward()"
# An input of these kinds is clicked; of any other, typed into.
_CLICKED_KINDS = {"button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"}


class Chance:
    """Draws actions for one episode."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, instruction: str, observation: str, past_actions: Sequence[str]) -> str:
        """One of the page's actions; what is typed is a word of the instruction."""
        draw = random.Random(f"{self._seed}/{len(past_actions)}")  # noqa: S311  no secret hangs on it
        words = re.findall(r"\w+", instruction) or ["a"]
        return draw.choice(list(_actions(parse(observation), draw.choice(words))))


def _actions(page: Page, word: str) -> Iterator[str]:
    yield from (SCROLL_DOWN, BACK, LEAVE)
    options = _options(page)
    for element in page.numbered:
        if element.tag == "select":
            yield from (select(element, option) for option in options.get(element.number, ()))
        elif element.tag == "textarea" or (element.tag == "input" and element.kind not in _CLICKED_KINDS):
            yield type_text(element, word)
        else:
            yield click(element)


def _options(page: Page) -> dict[str, list[str]]:
    """The options of each dropdown: those that follow it."""
    options: dict[str, list[str]] = {}
    number = ""
    for element in page.elements:
        if element.tag == "select":
            number = element.number
        elif element.tag == "option" and element.text:
            options.setdefault(number, []).append(element.text)
    return options
