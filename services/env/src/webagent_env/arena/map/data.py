"""The map's data: towns, and places in some of them. Coordinates are in hundreds of metres; ways go along the grid."""

from __future__ import annotations

import sqlite3
from random import Random

from webagent_env.arena.words import LAST_NAMES, STREET_KINDS, STREETS, TOWNS, words
from webagent_env.arena.world import Data, Store

SCHEMA = """
CREATE TABLE place (slug TEXT PRIMARY KEY, name TEXT UNIQUE, kind TEXT, town TEXT, street TEXT, x INTEGER, y INTEGER,
  phone TEXT, opens TEXT, closes TEXT);
CREATE TABLE saved (list TEXT, slug TEXT, PRIMARY KEY (list, slug));
CREATE TABLE edit (id INTEGER PRIMARY KEY, slug TEXT, what TEXT, value TEXT);
"""
SIZE = 400
LISTS = ("Favorites", "To visit", "For work")
# Minutes before one is on the way, and minutes for a kilometre.
MODES = {"Car": (4, 1.5), "Bike": (1, 4.0), "Foot": (0, 12.0)}
KINDS = {
    "Bakery": "{last} Bakery",
    "Bank": "{street} Bank",
    "Cafe": "{word} Cafe",
    "Cinema": "{word} Cinema",
    "Hotel": "Hotel {word}",
    "Library": "{last} Library",
    "Museum": "{topic} Museum",
    "Pharmacy": "{street} Pharmacy",
    "School": "{last} School",
}
_WORDS = words(
    "Amber Aurora Bluebird Comet Crescent Dolphin Eclipse Fern Golden Heron Iris Jasmine Lantern Marigold Nova Olive"
    " Pearl Quartz Raven Silver Tulip Velvet"
)
_TOPICS = words("Railway Clock Glass Pottery Maritime Mining Textile Toy Bread Radio Map Garden Kite Salt Chess Paper")
_SETTLED = 7


def fill(into: sqlite3.Connection, draw: Random) -> None:
    """Draws a region."""
    towns = list(TOWNS)
    draw.shuffle(towns)
    for index, town in enumerate(towns):
        x, y = draw.randrange(30, SIZE - 30), draw.randrange(30, SIZE - 30)
        _place(into, town, "Town", town, "Main Square", x, y, draw)
        if index < _SETTLED:
            for kind, pattern in KINDS.items():
                street = f"{draw.randrange(1, 90)} {draw.choice(STREETS)} {draw.choice(STREET_KINDS)}"
                at = x + draw.randrange(-25, 26), y + draw.randrange(-25, 26)
                name = _free_name(into, pattern, draw)
                _place(into, name, kind, town, street, *at, draw)
    slugs = [row[0] for row in into.execute("SELECT slug FROM place WHERE kind <> 'Town' ORDER BY slug")]
    for slug in draw.sample(slugs, 4):
        into.execute("INSERT INTO saved VALUES (?, ?)", (draw.choice(LISTS), slug))


def _free_name(into: sqlite3.Connection, pattern: str, draw: Random) -> str:
    while True:
        name = pattern.format(
            last=draw.choice(LAST_NAMES),
            street=draw.choice(STREETS),
            word=draw.choice(_WORDS),
            topic=draw.choice(_TOPICS),
        )
        if into.execute("SELECT 1 FROM place WHERE name = ?", (name,)).fetchone() is None:
            return name


def _place(
    into: sqlite3.Connection, name: str, kind: str, town: str, street: str, x: int, y: int, draw: Random
) -> None:
    phone = f"555-{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}"
    opens, closes = f"{draw.randrange(6, 11):02}:00", f"{draw.randrange(15, 24):02}:{draw.choice(('00', '30'))}"
    into.execute(
        "INSERT INTO place VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (name.lower().replace(" ", "-"), name, kind, town, street, x, y, phone, opens, closes),
    )


def metres(one: sqlite3.Row, other: sqlite3.Row) -> int:
    """How far it is from one place to another."""
    return 100 * int(abs(one["x"] - other["x"]) + abs(one["y"] - other["y"]))


def minutes(distance: int, mode: str) -> int:
    """How long that takes."""
    start, pace = MODES[mode]
    return round(start + pace * distance / 1000)


def kilometres(distance: int) -> str:
    """A distance as the map writes it."""
    return f"{distance / 1000:.1f} km"


def near(data: Data, to: sqlite3.Row, kind: str) -> list[tuple[int, sqlite3.Row]]:
    """Places of a kind and how far they are, the nearest first."""
    found = data.all("SELECT * FROM place WHERE kind = ? AND slug <> ?", kind, to["slug"])
    return sorted(((metres(to, each), each) for each in found), key=lambda pair: (pair[0], pair[1]["name"]))


STORE = Store("map", SCHEMA, fill)
