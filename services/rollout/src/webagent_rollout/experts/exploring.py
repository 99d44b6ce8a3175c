"""Experts for tasks that open things until the target shows: tabs, sections, folders, result pages, menus, dates."""

from __future__ import annotations

import re

from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import (
    WAIT,
    Turn,
    click,
    click_or_scroll,
    fields,
    first,
    hover,
    labelled,
    nth,
    press,
    type_text,
)

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def link_in_tabs(turn: Turn) -> str:
    """Goes through the tabs until the quoted link shows, then clicks it. The first is open from the start."""
    return _open_until(turn, r"^(Tab #)?\d$", already_open=1)


def link_in_sections(turn: Turn) -> str:
    """Expands one section after another until the quoted link shows, then clicks it."""
    return _open_until(turn, r"^Section #\d+$", already_open=0)


def _open_until(turn: Turn, heading: str, already_open: int) -> str:
    headings = [element for element in turn.page.numbered if re.match(heading, element.text)]
    links = [element for element in labelled(turn, turn.quoted[0]) if element not in headings]
    if links:
        return click(links[0])
    if turn.quoted[0] in turn.page.chunks and turn.past[-1:] != (WAIT,):
        return WAIT  # the section is still unfolding
    return click(nth(headings, already_open + turn.moves, "tab or section"))


def expand_and_submit(turn: Turn) -> str:
    """Expands the only section, then submits."""
    if turn.moves:
        return press(turn, "Submit")
    headings = [element for element in turn.page.numbered if element.text.startswith("Section #")]
    return click(first(headings, "section"))


def search_result(turn: Turn) -> str:
    """Searches for the quoted text, goes to the result's page and clicks it; three results to a page."""
    (which,) = turn.asked(r"click the ([1-9])\w\w search result")
    page, place = divmod(int(which) - 1, 3)
    field = first(fields(turn), "search field")
    if field.value != turn.quoted[0]:
        return type_text(field, turn.quoted[0])
    links = turn.page.tagged("a")
    if not links:
        return press(turn, "Search")
    turn_page = labelled(turn, str(page + 1), "a")
    if page and (not turn_page or click(turn_page[0]) not in turn.past):
        return click_or_scroll(turn, turn_page, "page number")
    return click_or_scroll(turn, links[place : place + 1], "result")


def autocomplete(turn: Turn) -> str:
    """Types the beginning, picks the first suggestion that fits, and submits."""
    beginning, ending = turn.quoted[0], turn.quoted[1] if len(turn.quoted) > 1 else ""
    if turn.moves == 0:
        return type_text(first(fields(turn), "text field"), beginning)
    if turn.moves > 1:
        return press(turn, "Submit")
    suggestions = [element for element in turn.page.numbered if element.tag not in {"input", "button"}]
    fitting = [item for item in suggestions if item.text.startswith(beginning) and item.text.endswith(ending)]
    return click_or_scroll(turn, fitting, "suggestion")


def tree_entry(turn: Turn) -> str:
    """Opens folders from top to bottom until the named entry shows, then clicks it."""
    found = labelled(turn, turn.quoted[0])
    folders = [element for element in turn.page.tagged("div") if not element.text]
    return click(found[0] if found else nth(folders, turn.moves, "folder"))


def menu_entry(turn: Turn) -> str:
    """Hovers down the menu along the path that the instruction gives, and clicks its end."""
    (path,) = turn.asked(r"^Select (.+)$")
    names = path.split(">")
    depth = min(turn.moves, len(names) - 1)
    entry = first(labelled(turn, names[depth]), names[depth])
    return click(entry) if depth == len(names) - 1 else hover(entry)


def contact_detail(turn: Turn) -> str:
    """Turns the contact book's pages to the named person and clicks the asked detail."""
    name, detail = turn.asked(r"Find (.+) in the contact book and click on their (\w+)")
    if name not in turn.page.chunks:
        return press(turn, ">")
    caption = f"{detail.capitalize()}:"
    return click_or_scroll(turn, [element for element in turn.page.numbered if caption in element.lead], detail)


def pick_date(turn: Turn) -> str:
    """Opens the calendar, goes back to the month, clicks the day and submits."""
    date = turn.asked(r"Select (0[1-9]|1[0-2])/(\d\d)/(\d{4}) as the date")
    field = first(fields(turn), "date field")
    if field.value == "/".join(date):
        return press(turn, "Submit")
    if not any(month in turn.page.chunks for month in _MONTHS):
        return click(field)
    if _MONTHS[int(date[0]) - 1] not in turn.page.chunks:
        return click_or_scroll(turn, _titled(turn, "Prev"), "previous month")
    return click_or_scroll(turn, labelled(turn, str(int(date[1])), "a"), "day")


def _titled(turn: Turn, title: str) -> list[Element]:
    return [element for element in turn.page.numbered if element.attributes.get("title") == title]
