"""The map's pages and forms."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.map.data import KINDS, LISTS, MODES, SIZE, kilometres, metres, minutes, near
from webagent_env.arena.site import Problem, Site, Visit, paged

SITE = Site("map", "__MAP__", "/map", "map", "Region Map")
EDITED = ("Phone", "Opens", "Closes", "Street")
_PAGE = 7
_NEAREST = 6


@SITE.page("/")
def home(visit: Visit) -> web.Response:
    """The whole region."""
    towns = visit.data.all("SELECT * FROM place WHERE kind = 'Town'")
    return visit.show("home", **_drawing(visit, *towns))


@SITE.page("/search")
def search(visit: Visit) -> web.Response:
    """Places whose name, kind and town have all the words."""
    text = visit.asked("q")
    wanted = [f"%{word}%" for word in text.split()]
    where = " AND ".join("name || ' ' || kind || ' ' || town LIKE ?" for _ in wanted) or "0"
    found = visit.data.all(f"SELECT * FROM place WHERE {where} ORDER BY name", *wanted)  # noqa: S608 - our own text
    return visit.show("search", words=text, **paged(visit, found, _PAGE))


@SITE.page("/place/{slug}.html")
def place(visit: Visit) -> web.Response:
    """One place."""
    one = _place(visit)
    return visit.show("place", place=one, lists=LISTS, edited=EDITED, **_drawing(visit, one))


@SITE.page("/place/{slug}.html/nearby")
def nearby(visit: Visit) -> web.Response:
    """The places of a kind that are nearest to one."""
    one, kind = _place(visit), visit.asked("kind")
    found = [(kilometres(distance), each) for distance, each in near(visit.data, one, kind)[:_NEAREST]]
    return visit.show("nearby", place=one, kinds=tuple(KINDS), kind=kind, found=found)


@SITE.page("/directions")
def directions(visit: Visit) -> web.Response:
    """The way from one place to another."""
    start, end, mode = visit.asked("from"), visit.asked("to"), visit.asked("by") or "Car"
    ends = [visit.data.one("SELECT * FROM place WHERE name = ? COLLATE NOCASE", name) for name in (start, end)]
    missing = [name for name, found in zip((start, end), ends, strict=True) if name and found is None]
    values: dict[str, object] = {"start": start, "end": end, "mode": mode, "modes": tuple(MODES), "missing": missing}
    if ends[0] is None or ends[1] is None or mode not in MODES:
        return visit.show("directions", way=None, **values, **_drawing(visit))
    distance = metres(ends[0], ends[1])
    way = {
        "distance": kilometres(distance),
        "minutes": minutes(distance, mode),
        "across": (abs(ends[0]["x"] - ends[1]["x"]) / 10, "east" if ends[0]["x"] < ends[1]["x"] else "west"),
        "along": (abs(ends[0]["y"] - ends[1]["y"]) / 10, "south" if ends[0]["y"] < ends[1]["y"] else "north"),
    }
    return visit.show("directions", way=way, **values, **_drawing(visit, ends[0], ends[1]))


# ---- what the visitor keeps ------------------------------------------------------------------------------------------
@SITE.page("/saved")
def saved(visit: Visit) -> web.Response:
    """The saved places, list by list."""
    query = "SELECT place.* FROM saved JOIN place USING (slug) WHERE list = ? ORDER BY name"
    return visit.show("saved", lists={name: visit.data.all(query, name) for name in LISTS})


@SITE.action("/place/{slug}.html/save")
def save(visit: Visit) -> web.Response:
    """Saves a place to a list."""
    name = visit.given("list", "List")
    if name not in LISTS:
        raise Problem("There is no such list.")
    visit.data.do("INSERT OR IGNORE INTO saved VALUES (?, ?)", name, _place(visit)["slug"])
    return visit.go(f"/place/{visit.part('slug')}.html", f"Saved to {name}.")


@SITE.action("/saved/remove")
def remove(visit: Visit) -> web.Response:
    """Takes a place off a list."""
    visit.data.do("DELETE FROM saved WHERE list = ? AND slug = ?", visit.hidden("list"), visit.hidden("slug"))
    return visit.go("/saved", "Removed.")


@SITE.action("/place/{slug}.html/edit")
def suggest(visit: Visit) -> web.Response:
    """Takes a suggested edit in."""
    what = visit.given("what", "What")
    if what not in EDITED:
        raise Problem("What is wrong?")
    visit.data.do(
        "INSERT INTO edit (slug, what, value) VALUES (?, ?, ?)",
        _place(visit)["slug"],
        what,
        visit.given("value", "Value"),
    )
    return visit.go("/edits", "Thank you. We will look into it.")


@SITE.page("/edits")
def edits(visit: Visit) -> web.Response:
    """The edits that were suggested."""
    return visit.show(
        "edits", items=visit.data.all("SELECT edit.*, name FROM edit JOIN place USING (slug) ORDER BY id")
    )


def _place(visit: Visit) -> Row:
    found = visit.data.one("SELECT * FROM place WHERE slug = ?", visit.part("slug"))
    if found is None:
        raise web.HTTPNotFound(text="There is no such place.")
    return found


def _drawing(visit: Visit, *marked: Row) -> dict[str, object]:
    """What the picture of the region needs."""
    return {"size": SIZE, "marked": marked, "dots": visit.data.all("SELECT x, y FROM place")}
