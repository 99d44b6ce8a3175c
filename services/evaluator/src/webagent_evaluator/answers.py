"""How an answer, or a text on a page, is compared with what a rule wants. Pure functions, exact in each dialect."""

from __future__ import annotations

import re

from webagent_evaluator.dialects import Manner, alternatives
from webagent_evaluator.verdicts import malformed
from webagent_evaluator.words import words

NOT_ACHIEVABLE = "N/A"
_TOLERANCE = 1e-8
_COMPARISON = re.compile(r"\s*(<=|>=|==|<|>)\s*([-+0-9.eE]+)\s*")
_DECIMAL = re.compile(r"\d\.\d+$")
_DECIMAL_BEFORE = re.compile(r"\d\.$")
_COMMA_BEFORE = re.compile(r"(?<!\d)\d{1,3},$")
_GROUP = re.compile(r"\d{3}(?!\d)")
_MORE_OF_NUMBER = re.compile(r"\.\d|,\d{3}(?!\d)")


def clean(text: str, manner: Manner) -> str:
    """Lower case without a pair of quotes, and upstream without white space around them."""
    if manner.upstream:
        text = text.strip()
    for quote in ("'", '"'):
        if text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
            break
    return text.lower()


def equal(reference: str, text: str, manner: Manner) -> bool:
    """The rule exact_match."""
    return clean(text, manner) == clean(reference, manner)


def includes(item: str, text: str, manner: Manner, *, lone: bool, either: bool) -> bool:
    """One item of the rule must_include: `lone` if it has no other, `either` if the item may hold alternatives."""
    parts = alternatives(item) if either else (item,)
    return any(_includes(part, text, manner, lone=lone) for part in parts)


def excludes(item: str, text: str, manner: Manner) -> bool:
    """One item of the rule must_exclude."""
    reference, cleaned = clean(item, manner), clean(text, manner)
    return reference not in (words(cleaned) if len(words(reference)) == 1 else cleaned)


def whole_number(text: str) -> int | None:
    """The integer that a text is, thousands separated by commas or not."""
    try:
        return int(text.strip().replace(",", ""))
    except ValueError:
        return None


def satisfies(number: float, condition: str) -> bool:
    """One item of the rule required_values: an inequality such as ">= 700", or alternatives of them."""
    return any(_compare(number, part) for part in alternatives(condition))


def _includes(reference: str, text: str, manner: Manner, *, lone: bool) -> bool:
    reference, text = clean(reference, manner), clean(text, manner)
    if not manner.upstream:
        return reference in (_parts(text, manner) if len(words(reference)) == 1 else text)
    if manner.strict:
        return _stands_in(reference, text)
    if lone and len(reference) == 1 and len(words(reference)) == 1:
        return reference in words(text)
    return reference in text


def _parts(text: str, manner: Manner) -> set[str]:
    parts = set(words(text))
    for separator in ("/", "=") if manner.strict else ("/",):
        parts |= {part for token in parts if separator in token for part in token.split(separator)}
    return parts


def _stands_in(reference: str, text: str) -> bool:
    """Whether the reference occurs by itself: not within a longer word or another number."""
    start = text.find(reference)
    while start >= 0:
        end = start + len(reference)
        if _begins(text, start) and _ends(text, end, reference):
            return True
        start = text.find(reference, start + 1)
    return False


def _begins(text: str, start: int) -> bool:
    if not _in_word(text[start : start + 1]):
        return True
    if text[start].isdigit() and (_DECIMAL_BEFORE.search(text, max(0, start - 2), start) or _grouped(text, start)):
        return False
    return not _in_word(text[start - 1 : start])


def _ends(text: str, end: int, reference: str) -> bool:
    if not _in_word(reference[-1:]):
        return True
    decimal = _DECIMAL.search(reference)
    if decimal and text[end : end + 1].isdigit():
        return True  # the same number, given more exactly
    if reference[-1].isdigit() and not decimal and _MORE_OF_NUMBER.match(text, end):
        return False
    return not _in_word(text[end : end + 1])


def _grouped(text: str, start: int) -> bool:
    """Whether what starts here is a group of digits after a comma, as the 170 of 1,170."""
    return bool(_COMMA_BEFORE.search(text, max(0, start - 5), start) and _GROUP.match(text, start))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _compare(number: float, condition: str) -> bool:
    match = _COMPARISON.fullmatch(condition)
    try:
        bound = float(match[2]) if match else None
    except ValueError:
        bound = None
    if match is None or bound is None:
        raise malformed(f"{condition!r} is no inequality")
    return {
        "<=": number <= bound + _TOLERANCE,
        ">=": number >= bound - _TOLERANCE,
        "==": bound - _TOLERANCE <= number <= bound + _TOLERANCE,
        "<": number < bound + _TOLERANCE,
        ">": number > bound - _TOLERANCE,
    }[match[1]]
