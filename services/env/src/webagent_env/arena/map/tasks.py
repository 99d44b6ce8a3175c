"""Intent templates of the map."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from sqlite3 import Row
from urllib.parse import urlencode

from webagent_env.arena.intents import OR_NOT, Chapter, Goal, answer, not_possible, shows, stops_at, texts_of
from webagent_env.arena.map.data import KINDS, LISTS, MODES, kilometres, metres, minutes, near
from webagent_env.arena.map.site import EDITED
from webagent_env.arena.words import LAST_NAMES
from webagent_env.arena.world import World

MAP = Chapter("map", start=("__MAP__/",))
_SAVED = "[...document.querySelectorAll('.saved')].map((each) => each.dataset.saved).join('; ')"


def places(world: World, draw: Random, where: str = "kind <> 'Town'") -> list[Row]:
    """Places of which a condition holds, in random order."""
    found = world.data("map").all(f"SELECT * FROM place WHERE {where} ORDER BY slug")  # noqa: S608 - our own text
    draw.shuffle(found)
    return found


def absent_place(world: World, draw: Random) -> str:
    """The name of a place that is not on the map."""
    while True:
        name = f"{draw.choice(LAST_NAMES)} {draw.choice(('Bakery', 'Library', 'School'))}"
        if world.data("map").one("SELECT 1 FROM place WHERE name = ?", name) is None:
            return name


def saved_with(world: World, name: str, *more: Row) -> dict[str, object]:
    """The rule that these places are on a list as well, and nothing else has changed."""
    query = "SELECT list, name FROM saved JOIN place USING (slug)"
    held = {(row["list"], row["name"]) for row in world.data("map").all(query)} | {
        (name, each["name"]) for each in more
    }
    after = [f"{each}: {one}" for each, one in sorted(held, key=lambda pair: (LISTS.index(pair[0]), pair[1]))]
    return shows(("__MAP__/saved", _SAVED, "; ".join(after)))


# ---- places ----------------------------------------------------------------------------------------------------------
@MAP.intent("map-phone", "What is the phone number of the {{place}}? Answer with it. " + OR_NOT)
def phone(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, read."""
    for each in places(world, draw):
        yield Goal({"place": each["name"]}, answer(each["phone"]))
        if draw.random() < 0.25:
            yield Goal({"place": absent_place(world, draw)}, not_possible())


@MAP.intent("map-hours", "When does the {{kind}} in {{town}} {{what}}? Answer with the time. " + OR_NOT)
def hours(world: World, draw: Random) -> Iterator[Goal]:
    """Search by kind and town, open, read."""
    found = places(world, draw)
    settled = {each["town"] for each in found}
    empty = [each["name"] for each in places(world, draw, "kind = 'Town'") if each["name"] not in settled]
    for each in found:
        kind, town, what = each["kind"].lower(), each["town"], draw.choice(("open", "close"))
        yield Goal({"kind": kind, "town": town, "what": what}, answer(each[f"{what}s"]))
        if draw.random() < 0.15:
            yield Goal({"kind": kind, "town": draw.choice(empty), "what": what}, not_possible())


@MAP.intent("map-nearest", "Open the page of the {{kind}} that is nearest to the {{place}}.")
def nearest(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, what is near, choose, show, open."""
    for _ in range(100):
        kind, each = draw.choice(list(KINDS)), places(world, draw)[0]
        (one, found), (two, _other) = near(world.data("map"), each, kind)[:2]
        if one < two and each["kind"] != kind:
            values = {"kind": kind.lower(), "place": each["name"]}
            yield Goal(values, stops_at(f"__MAP__/place/{found['slug']}.html"))


@MAP.intent(
    "map-within",
    "How many places of the kind {{kind}} are within {{most}} km of the {{place}}? Answer with the number.",
)
def within(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, what is near, choose, show, count."""
    for _ in range(100):
        kind, each, most = draw.choice(list(KINDS)), places(world, draw)[0], draw.choice((5, 10, 15, 20))
        number = sum(distance <= most * 1000 for distance, _ in near(world.data("map"), each, kind))
        if number < 6:
            values = {"kind": kind.lower(), "most": str(most), "place": each["name"]}
            yield Goal(values, answer(str(number)))


# ---- ways ------------------------------------------------------------------------------------------------------------
@MAP.intent("map-distance", "How far is it from the {{start}} to the {{end}}? Answer in km, such as 3.5 km. " + OR_NOT)
def distance(world: World, draw: Random) -> Iterator[Goal]:
    """Directions, two ends, go, read."""
    for _ in range(100):
        start, end = places(world, draw)[:2]
        yield Goal({"start": start["name"], "end": end["name"]}, answer(kilometres(metres(start, end))))
        if draw.random() < 0.2:
            yield Goal({"start": start["name"], "end": absent_place(world, draw)}, not_possible())


@MAP.intent(
    "map-time", "How many minutes does it take by {{mode}} from {{start}} to the {{end}}? Answer with the number."
)
def time(world: World, draw: Random) -> Iterator[Goal]:
    """Directions, two ends, a mode, go, read."""
    for _ in range(100):
        start, end = places(world, draw, "kind = 'Town'")[0], places(world, draw)[0]
        mode = draw.choice(("Bike", "Foot"))
        values = {"mode": mode.lower(), "start": start["name"], "end": end["name"]}
        yield Goal(values, answer(str(minutes(metres(start, end), mode))))


@MAP.intent("map-route", "Show the way from the {{start}} to the {{end}} by {{mode}}.", held_out=True)
def route(world: World, draw: Random) -> Iterator[Goal]:
    """Directions, two ends, a mode, go."""
    for _ in range(100):
        start, end = places(world, draw)[:2]
        mode = draw.choice(list(MODES))
        query = urlencode({"from": start["name"], "to": end["name"], "by": mode})
        values = {"start": start["name"], "end": end["name"], "mode": mode.lower()}
        yield Goal(values, stops_at(f"__MAP__/directions?{query}"))


@MAP.intent("map-closer", "Which is closer to {{town}}, the {{one}} or the {{other}}? Answer with its name.")
def closer(world: World, draw: Random) -> Iterator[Goal]:
    """Directions to the one, then to the other, and compare."""
    for _ in range(100):
        town = places(world, draw, "kind = 'Town'")[0]
        one, other = places(world, draw)[:2]
        if metres(town, one) != metres(town, other):
            name = min(one, other, key=lambda each: metres(town, each))["name"]
            yield Goal({"town": town["name"], "one": one["name"], "other": other["name"]}, answer(name))


@MAP.intent(
    "map-tour",
    "How many minutes does it take by {{mode}} from {{town}} to the {{one}} and from there to the {{other}}, in all?"
    " Answer with the number.",
    held_out=True,
)
def tour(world: World, draw: Random) -> Iterator[Goal]:
    """Directions twice, and add."""
    for _ in range(100):
        town = places(world, draw, "kind = 'Town'")[0]
        one, other = places(world, draw)[:2]
        mode = draw.choice(("Bike", "Foot"))
        total = minutes(metres(town, one), mode) + minutes(metres(one, other), mode)
        values = {"mode": mode.lower(), "town": town["name"], "one": one["name"], "other": other["name"]}
        yield Goal(values, answer(str(total)))


# ---- what the visitor keeps ------------------------------------------------------------------------------------------
@MAP.intent("map-save", "Save the {{place}} to the list {{list}}. " + OR_NOT)
def save(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, choose, save."""
    query = "SELECT name FROM saved JOIN place USING (slug)"
    held = [row["name"] for row in world.data("map").all(query)]
    for each in places(world, draw):
        name = draw.choice(LISTS)
        if each["name"] not in held:
            yield Goal({"place": each["name"], "list": name}, saved_with(world, name, each))
        if draw.random() < 0.15:
            yield Goal({"place": absent_place(world, draw), "list": name}, not_possible())


@MAP.intent("map-save-two", "Save the {{one}} and the {{other}} to the list {{list}}.")
def save_two(world: World, draw: Random) -> Iterator[Goal]:
    """The same, twice."""
    held = [row["slug"] for row in world.data("map").all("SELECT slug FROM saved")]
    for _ in range(60):
        one, other = [each for each in places(world, draw) if each["slug"] not in held][:2]
        name = draw.choice(LISTS)
        yield Goal({"one": one["name"], "other": other["name"], "list": name}, saved_with(world, name, one, other))


@MAP.intent("map-save-nearest", "Save the {{kind}} that is nearest to the {{place}} to the list {{list}}.")
def save_nearest(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, what is near, choose, show, open, choose, save."""
    held = [row["slug"] for row in world.data("map").all("SELECT slug FROM saved")]
    for _ in range(100):
        kind, each, name = draw.choice(list(KINDS)), places(world, draw)[0], draw.choice(LISTS)
        (one, found), (two, _other) = near(world.data("map"), each, kind)[:2]
        if one < two and each["kind"] != kind and found["slug"] not in held:
            yield Goal({"kind": kind.lower(), "place": each["name"], "list": name}, saved_with(world, name, found))


@MAP.intent("map-edit", 'Suggest an edit of the {{place}}: its field {{what}} should say "{{value}}".')
def edit(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, unfold, choose, type, send."""
    for each in places(world, draw):
        what = draw.choice(EDITED)
        value = {
            "Phone": f"555-{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}",
            "Opens": f"{draw.randrange(6, 11):02}:15",
            "Closes": f"{draw.randrange(15, 24):02}:45",
            "Street": f"{draw.randrange(1, 90)} New Road",
        }[what]
        rule = shows(("__MAP__/edits", texts_of(".edit"), f"{each['name']}: {what} {value}"))
        yield Goal({"place": each["name"], "what": what, "value": value}, rule)
