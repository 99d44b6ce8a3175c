"""The code host's data: people, projects with their issues, merge requests and commits, and the first user's to-dos."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from random import Random

from webagent_env.arena.words import FIRST_NAMES, LAST_NAMES, words
from webagent_env.arena.world import TODAY, Store

# Everybody's password; the name below is who is signed in at first.
PASSWORD = "green-lamp-5"  # noqa: S105 - no secret
USER = "robin"

SCHEMA = """
CREATE TABLE person (name TEXT PRIMARY KEY, full_name TEXT, status TEXT DEFAULT '', location TEXT DEFAULT '');
CREATE TABLE project (slug TEXT PRIMARY KEY, about TEXT, visibility TEXT, stars INTEGER, created TEXT);
CREATE TABLE star (user TEXT, project TEXT, PRIMARY KEY (user, project));
CREATE TABLE member (project TEXT, name TEXT, role TEXT, PRIMARY KEY (project, name));
CREATE TABLE issue (project TEXT, number INTEGER, title TEXT, text TEXT, author TEXT, assignee TEXT, label TEXT,
  due TEXT, state TEXT DEFAULT 'open', opened TEXT, PRIMARY KEY (project, number));
CREATE TABLE merge (project TEXT, number INTEGER, title TEXT, author TEXT, source TEXT, target TEXT, reviewer TEXT,
  state TEXT DEFAULT 'open', conflicts INTEGER DEFAULT 0, PRIMARY KEY (project, number));
CREATE TABLE remark (id INTEGER PRIMARY KEY, project TEXT, number INTEGER, author TEXT, text TEXT);
CREATE TABLE branch (project TEXT, name TEXT);
CREATE TABLE commits (id INTEGER PRIMARY KEY, project TEXT, author TEXT, message TEXT, day TEXT);
CREATE TABLE todo (id INTEGER PRIMARY KEY, user TEXT, who TEXT, what TEXT, project TEXT, number INTEGER, title TEXT);
CREATE VIEW listed AS SELECT project.*,
  stars + (SELECT count(*) FROM star WHERE star.project = slug) AS starred FROM project;
"""

ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")
LABELS = ("bug", "feature", "docs", "question", "urgent")
VISIBILITIES = ("Private", "Internal", "Public")
FIRST_WORDS = words(
    "amber brisk candid dapper early fuzzy gentle hollow ivory jolly keen lucid mellow nimble opal plain"
)
SECOND_WORDS = words(
    "anchor beacon compass donkey engine ferry garden harbor island jacket kernel lantern mirror needle"
)
ABOUTS = (
    "A parser for tide tables.",
    "Tools for small libraries.",
    "Draws maps of bus lines.",
    "Keeps recipes in plain text.",
    "A calendar for the terminal.",
    "Sorts photos by place.",
    "Counts birds in recordings.",
    "A tiny web server.",
)
PARTS = words("search login export import parser cache menu report upload editor calendar printer sidebar dashboard")
TROUBLES = (
    "The {} is slow on large files",
    "Crash when the {} is empty",
    "Describe the {} in the manual",
    "Wrong colors in the {}",
    "Tests for the {} fail at midnight",
    "Add a dark theme to the {}",
    "The {} forgets its settings",
    "Keyboard shortcuts for the {}",
)
CHANGES = (
    "Rewrite the {}",
    "Speed up the {}",
    "Fix typos in the {}",
    "Split the {} in two",
    "Translate the {}",
    "Log errors of the {}",
)
_TEXTS = (
    "It happens every time.",
    "See the forum for details.",
    "Would be good to have before the next release.",
    "Several users asked for it.",
    "I can help to test.",
)
_KINDS = ("assigned you", "mentioned you on")
_PROJECTS = 10
_OWN = 3


def fill(into: sqlite3.Connection, draw: Random) -> None:
    """Draws a code host."""
    people = _people(into, draw)
    slugs = _projects(into, draw, people)
    for slug in slugs:
        members = [row[0] for row in into.execute("SELECT name FROM member WHERE project = ? ORDER BY name", (slug,))]
        _issues(into, draw, slug, members)
        _merges(into, draw, slug, members)
        _commits(into, draw, slug, members)
    _todos(into, draw)


def slug_of(draw: Random) -> str:
    """The name of a project."""
    return f"{draw.choice(FIRST_WORDS)}-{draw.choice(SECOND_WORDS)}"


def issue_title(draw: Random) -> str:
    """The title of an issue."""
    return draw.choice(TROUBLES).format(draw.choice(PARTS))


def merge_title(draw: Random) -> str:
    """The title of a merge request."""
    return draw.choice(CHANGES).format(draw.choice(PARTS))


def _people(into: sqlite3.Connection, draw: Random) -> list[str]:
    into.execute("INSERT INTO person VALUES (?, 'Robin Vale', 'Working', 'Milford')", (USER,))
    names: list[str] = []
    while len(names) < 18:
        first, last = draw.choice(FIRST_NAMES), draw.choice(LAST_NAMES)
        name = f"{first[0]}{last}".lower()
        if name not in names:
            names.append(name)
            into.execute("INSERT INTO person (name, full_name) VALUES (?, ?)", (name, f"{first} {last}"))
    return names


def _projects(into: sqlite3.Connection, draw: Random, people: list[str]) -> list[str]:
    firsts, seconds = draw.sample(FIRST_WORDS, _PROJECTS), draw.sample(SECOND_WORDS, _PROJECTS)
    slugs = [f"{first}-{second}" for first, second in zip(firsts, seconds, strict=True)]
    # No two have equally many stars, nor come to have by one more.
    stars = draw.sample(range(5, 800, 3), _PROJECTS)
    created = TODAY - timedelta(days=900)
    for index, slug in enumerate(slugs):
        created += timedelta(days=draw.randrange(5, 60))
        about, visibility = draw.choice(ABOUTS), draw.choice(VISIBILITIES)
        into.execute(
            "INSERT INTO project VALUES (?, ?, ?, ?, ?)", (slug, about, visibility, stars[index], created.isoformat())
        )
        team = draw.sample(people, 6)
        roles = ["Owner", *(draw.choice(ROLES[:4]) for _ in team[1:])]
        # The first user owns some projects and takes part in the others.
        mine = "Owner" if index < _OWN else "Maintainer"
        roles[0] = "Maintainer" if index < _OWN else "Owner"
        into.execute("INSERT INTO member VALUES (?, ?, ?)", (slug, USER, mine))
        into.executemany(
            "INSERT INTO member VALUES (?, ?, ?)", [(slug, *each) for each in zip(team, roles, strict=True)]
        )
    into.executemany("INSERT INTO star VALUES (?, ?)", [(USER, slug) for slug in draw.sample(slugs, 4)])
    return slugs


def _issues(into: sqlite3.Connection, draw: Random, slug: str, members: list[str]) -> None:
    titles: list[str] = []
    opened = TODAY - timedelta(days=200)
    while len(titles) < 12:
        title = issue_title(draw)
        if title in titles:
            continue
        titles.append(title)
        opened += timedelta(days=draw.randrange(1, 16))
        due = (TODAY + timedelta(days=draw.randrange(2, 90))).isoformat() if draw.random() < 0.7 else ""
        state = "closed" if draw.random() < 0.3 else "open"
        # The first user has more to do than others.
        assignee = draw.choice([*members, USER, USER]) if draw.random() < 0.8 else ""
        into.execute(
            "INSERT INTO issue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (slug, len(titles), title, draw.choice(_TEXTS), draw.choice(members), assignee, draw.choice(LABELS), due,
             state, opened.isoformat()),
        )  # fmt: skip


def _merges(into: sqlite3.Connection, draw: Random, slug: str, members: list[str]) -> None:
    parts = draw.sample(PARTS, 7)
    into.execute("INSERT INTO branch VALUES (?, 'main')", (slug,))
    into.execute("INSERT INTO branch VALUES (?, 'stable')", (slug,))
    for number, part in enumerate(parts, start=1):
        branch = f"{draw.choice(('fix', 'new', 'try'))}-{part}"
        into.execute("INSERT INTO branch VALUES (?, ?)", (slug, branch))
        if number > 5:
            # Branches that nobody has asked to merge yet.
            continue
        state = draw.choice(("open", "open", "open", "merged", "closed")) if number > 1 else "open"
        title = draw.choice(CHANGES).format(part)
        conflicts = int(number > 1 and draw.random() < 0.25)
        into.execute(
            "INSERT INTO merge VALUES (?, ?, ?, ?, ?, 'main', ?, ?, ?)",
            (slug, number, title, draw.choice(members), branch, draw.choice(members), state, conflicts),
        )


def _commits(into: sqlite3.Connection, draw: Random, slug: str, members: list[str]) -> None:
    authors = draw.sample(members, 3)
    rows, day = [], TODAY - timedelta(days=150)
    for _ in range(20):
        day += timedelta(days=draw.randrange(0, 14))
        if day < TODAY:
            rows.append((slug, draw.choice(authors), merge_title(draw), day.isoformat()))
    into.executemany("INSERT INTO commits (project, author, message, day) VALUES (?, ?, ?, ?)", rows)


def _todos(into: sqlite3.Connection, draw: Random) -> None:
    """What waits for the first user: no two with one title."""
    query = (
        "SELECT project, number, title, author FROM issue WHERE state = 'open' AND author <> ? ORDER BY project, number"
    )
    found = into.execute(query, (USER,)).fetchall()
    titles: list[str] = []
    for project, number, title, author in draw.sample(found, len(found)):
        if title not in titles and len(titles) < 10:
            titles.append(title)
            into.execute(
                "INSERT INTO todo (user, who, what, project, number, title) VALUES (?, ?, ?, ?, ?, ?)",
                (USER, author, draw.choice(_KINDS), project, number, title),
            )


STORE = Store("code", SCHEMA, fill)
