"""Experts for tasks whose answer stands on the page: read it, type it, submit."""

from __future__ import annotations

import re

from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import (
    ExpertLost,
    Turn,
    click,
    fields,
    fill_then_press,
    first,
    labelled,
    nth,
    ordinal,
    press,
    type_text,
    whole_number,
)

# A binary search that the page alone tells: what to guess after each answer.
_FIRST_GUESS = "5"
_NEXT_GUESS = {
    "lower than 5": "2",
    "lower than 2": "0",
    "higher than 0": "1",
    "higher than 2": "3",
    "higher than 3": "4",
    "higher than 5": "7",
    "lower than 7": "6",
    "higher than 7": "8",
    "higher than 8": "9",
}


def answer(turn: Turn, text: str) -> str:
    """Types the answer into the first field and submits."""
    return fill_then_press(turn, [(first(fields(turn), "answer field"), text)], "Submit")


def arithmetic(turn: Turn) -> str:
    """Solves `a + b =`, `a - b =` or `a x b =`."""
    found = re.search(r"([0-9]+) ([-+x]) ([0-9]+) =", turn.page.text)
    if found is None:
        raise ExpertLost("no sum on the page")
    left, right = int(found[1]), int(found[3])
    return answer(turn, str({"+": left + right, "-": left - right, "x": left * right}[found[2]]))


def algebra(turn: Turn) -> str:
    """Solves an equation such as `x + 3 = 5` for x."""
    found = re.search(r"(x|[0-9]+) ([-+]) (x|[0-9]+) = ([0-9]+)", turn.page.text)
    if found is None:
        raise ExpertLost("no equation on the page")
    left, sign, right, total = found[1], found[2], found[3], int(found[4])
    if left == "x":
        return answer(turn, str(total - int(right) if sign == "+" else total + int(right)))
    return answer(turn, str(total - int(left) if sign == "+" else int(left) - total))


def spelled_out(turn: Turn) -> str:
    """Types the characters that stand one by one above the field."""
    letters = [element.text for element in turn.page.elements if element.tag == "span" and len(element.text) == 1]
    if not letters:
        raise ExpertLost("no letters on the page")
    return answer(turn, "".join(letters))


def table_value(turn: Turn) -> str:
    """Types the table's value for the named row."""
    (key,) = turn.asked(r"the value of (.+) into the text field")
    return answer(turn, _cell(turn, key))


def table_values(turn: Turn) -> str:
    """Types the table's value for each labelled field and submits."""
    both = [nth(fields(turn), index, "labelled field") for index in range(2)]
    return fill_then_press(turn, [(field, _cell(turn, _label(field))) for field in both], "Submit")


def _label(field: Element) -> str:
    if not field.lead:
        raise ExpertLost("a field without a label")
    return field.lead[-1].removesuffix(":")


def _cell(turn: Turn, key: str) -> str:
    cells = [element.text for element in turn.page.elements if element.tag == "td"]
    for name, value in zip(cells[::2], cells[1::2], strict=False):
        if name == key:
            return value
    raise ExpertLost(f"no row {key!r}")


def nth_word(turn: Turn) -> str:
    """Types the word at the asked position of the paragraph, without punctuation."""
    (which,) = turn.asked(r"Find the (\d+\w\w) word")
    paragraph = first([element for element in turn.page.elements if element.tag == "p"], "paragraph")
    words = paragraph.text.split()
    if ordinal(which) >= len(words):
        raise ExpertLost(f"the paragraph has {len(words)} words")
    return answer(turn, re.sub(r"[^a-zA-Z]", "", words[ordinal(which)]))


def copy_area(turn: Turn) -> str:
    """Types the text area's text into the text field and submits. The text ends in a blank, which the page hides."""
    areas = turn.page.tagged("textarea")
    index = ordinal(turn.asked(r"from the (\d\w\w) text area")[0]) if len(areas) > 1 else 0
    text = nth(areas, index, "text area").value
    field = first([field for field in fields(turn) if field.tag == "input"], "text field")
    return press(turn, "Submit") if field.value == text else type_text(field, f"{text} ")


def guess_number(turn: Turn) -> str:
    """Finds the number by halving, going by what the page says about the last guess."""
    found = re.search(r"The number is ((?:lower|higher) than [0-9])", turn.page.text)
    guess = _NEXT_GUESS.get(found[1]) if found else _FIRST_GUESS
    if guess is None:
        raise ExpertLost("every number was guessed")
    return answer(turn, guess)


def odd_or_even(turn: Turn) -> str:
    """Marks each number from top to bottom as odd or even, then submits."""
    odds, evens, row = labelled(turn, "Odd"), labelled(turn, "Even"), turn.moves
    if odds and row >= len(odds):
        return press(turn, "Submit")
    odd, even = nth(odds, row, "row"), nth(evens, row, "row")
    return click(odd if whole_number("".join(odd.trail)) % 2 else even)
