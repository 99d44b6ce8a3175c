"""Experts for the map."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    answer,
    beside,
    fill,
    found_by_search,
    heading,
    link,
    note,
    noted,
    read,
    search,
    shown,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import Script, Turn, click, first

SEARCH = "Search the map"
# Links above every page.
MENU = 3


def to_place(turn: Turn, place: str) -> str | None:
    """The way to a place's page; an answer if it is not on the map; None on the page."""
    return found_by_search(turn, SEARCH, place, f'Places for "{place}"', place)


def phone(turn: Turn) -> str:
    """Opens the place and reads its number."""
    (place,) = turn.asked(r"^What is the phone number of the (.+)\? Answer")
    return to_place(turn, place) or answer(read(turn, r"Phone: (\S+)\."))


def hours(turn: Turn) -> str:
    """Searches for the kind in the town, opens what there is, and reads the time."""
    kind, town, what = turn.asked(r"^When does the (\w+) in (\w+) (open|close)\?")
    at = heading(turn)
    if at == f'Places for "{kind} {town}"':
        found = _rows(turn)
        return click(found[0]) if found else answer(NOT_POSSIBLE)
    if at.startswith(("The region", "Places")):
        return search(turn, SEARCH, f"{kind} {town}")
    return answer(read(turn, rf"{what.capitalize()}s: ([\d:]+)\."))


def nearest(turn: Turn) -> str:
    """Opens the place, has the kind shown that is near, and opens the first."""
    kind, place = turn.asked(r"^Open the page of the (\w+) that is nearest to the (.+)\.$")
    return _to_nearest(turn, kind.capitalize(), place) or DONE


def within(turn: Turn) -> str:
    """Opens the place, has the kind shown that is near, and counts."""
    kind, most, place = turn.asked(r"of the kind (\w+) are within (\d+) km of the (.+)\? Answer")
    near = _nearby(turn, kind.capitalize(), place)
    if isinstance(near, str):
        return near
    return answer(str(sum(float(beside(each).split()[0]) <= int(most) for each in near)))


def distance(turn: Turn) -> str:
    """Asks for the way and reads its length."""
    start, end = turn.asked(r"^How far is it from the (.+) to the (.+)\? Answer")
    return way(turn, start, end, "") or answer(read(turn, r"([\d.]+ km)"))


def time(turn: Turn) -> str:
    """Asks for the way and reads how long it takes."""
    mode, start, end = turn.asked(r"take by (\w+) from (.+) to the (.+)\? Answer")
    return way(turn, start, end, mode) or answer(read(turn, r"(\d+) minutes"))


def route(turn: Turn) -> str:
    """Asks for the way."""
    start, end, mode = turn.asked(r"^Show the way from the (.+) to the (.+) by (\w+)\.$")
    return way(turn, start, end, mode) or DONE


def closer(turn: Turn) -> str:
    """Asks for the way to the one, notes its length, and asks for the way to the other."""
    town, one, other = turn.asked(r"^Which is closer to (\w+), the (.+) or the (.+)\? Answer")
    held = noted(turn, "km")
    if held is None:
        step = way(turn, town, one, "")
        return step or note("km", read(turn, r"([\d.]+) km"), fill(turn, {"To": other}, "Go"))
    step = way(turn, town, other, "")
    return step or answer(one if float(held) < float(read(turn, r"([\d.]+) km")) else other)


def tour(turn: Turn) -> str:
    """Asks for the first way, notes its time, asks for the second, and adds."""
    mode, town, one, other = turn.asked(r"by (\w+) from (\w+) to the (.+) and from there to the (.+), in all")
    held = noted(turn, "minutes")
    if held is None:
        step = way(turn, town, one, mode)
        return step or note("minutes", read(turn, r"(\d+) minutes"), fill(turn, {"From": one}, "Go"))
    step = way(turn, one, other, mode)
    return step or answer(str(int(held) + int(read(turn, r"(\d+) minutes"))))


def save(turn: Turn) -> str:
    """Opens the place and saves it to the list."""
    place, name = turn.asked(r"^Save the (.+) to the list ([^.]+)\.")
    return to_place(turn, place) or _save(turn, name)


def save_two(turn: Turn) -> str:
    """Saves the one, then the other."""
    one, other, name = turn.asked(r"^Save the (.+) and the (.+) to the list ([^.]+)\.$")
    if noted(turn, "first") is not None:
        return to_place(turn, other) or _save(turn, name)
    step = to_place(turn, one) or _save(turn, name)
    return note("first", "done", search(turn, SEARCH, other)) if step == DONE else step


def save_nearest(turn: Turn) -> str:
    """Goes to the nearest of the kind and saves that."""
    kind, place, name = turn.asked(r"^Save the (\w+) that is nearest to the (.+) to the list ([^.]+)\.$")
    return _to_nearest(turn, kind.capitalize(), place) or _save(turn, name)


def edit(turn: Turn) -> str:
    """Opens the place and sends the form for edits."""
    place, what, value = turn.asked(r'^Suggest an edit of the (.+): its field (\w+) should say "(.+)"\.$')
    if heading(turn) == "Suggested edits":
        return DONE
    step = to_place(turn, place)
    if step is not None:
        return step
    return (
        fill(turn, {"What": what, "New value": value}, "Send") if shown(turn, "Send") else link(turn, "Suggest an edit")
    )


def way(turn: Turn, start: str, end: str, mode: str) -> str | None:
    """Asks for a way; an answer if there is none; None once the page shows it."""
    if heading(turn) != "Directions":
        return link(turn, "Directions")
    if "There is no place called" in turn.page.text:
        return answer(NOT_POSSIBLE)
    if f"{start} to {end} by {mode}" in turn.page.text:
        return None
    wanted = {"From": start, "To": end}
    return fill(turn, {**wanted, "By": mode.capitalize()} if mode else wanted, "Go")


def _nearby(turn: Turn, kind: str, place: str) -> str | list[Element]:
    """The links of what is near a place, the nearest first; until they show, the next step."""
    if heading(turn) != f"Near {place}":
        return to_place(turn, place) or link(turn, "What is near")
    return _rows(turn) if f"{kind}, the nearest first:" in turn.page.text else fill(turn, {"Kind": kind}, "Show")


def _to_nearest(turn: Turn, kind: str, place: str) -> str | None:
    """The way to the nearest place of a kind; None on its page."""
    at = heading(turn)
    if at not in {"The region", place, f'Places for "{place}"', f"Near {place}"}:
        return None
    near = _nearby(turn, kind, place)
    return near if isinstance(near, str) else click(first(near, kind))


def _save(turn: Turn, name: str) -> str:
    return DONE if f"Saved to {name}." in turn.page.chunks else fill(turn, {"List": name}, "Save")


def _rows(turn: Turn) -> list[Element]:
    return [each for each in turn.page.tagged("a")[MENU:] if each.text not in {"Next", "Previous"}]


SCRIPTS: Mapping[str, Script] = {
    "map-closer": closer,
    "map-distance": distance,
    "map-edit": edit,
    "map-hours": hours,
    "map-nearest": nearest,
    "map-phone": phone,
    "map-route": route,
    "map-save": save,
    "map-save-nearest": save_nearest,
    "map-save-two": save_two,
    "map-time": time,
    "map-tour": tour,
    "map-within": within,
}
