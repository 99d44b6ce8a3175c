"""The forum's data: boards, members, threads, comments, and what its first user has done there."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from random import Random

from webagent_env.arena.words import FIRST_NAMES
from webagent_env.arena.world import TODAY, Store

# Everybody's password; the name below is who is signed in at first.
PASSWORD = "quiet-hill-3"  # noqa: S105 - no secret
USER = "wren77"

SCHEMA = """
CREATE TABLE board (slug TEXT PRIMARY KEY, name TEXT, subscribers INTEGER);
CREATE TABLE member (name TEXT PRIMARY KEY, bio TEXT, email TEXT, joined TEXT);
CREATE TABLE thread (id INTEGER PRIMARY KEY, board TEXT, title TEXT, text TEXT, author TEXT, day TEXT, score INTEGER);
CREATE TABLE comment (id INTEGER PRIMARY KEY, thread INTEGER, author TEXT, text TEXT, day TEXT, score INTEGER);
CREATE INDEX by_thread ON comment (thread);
CREATE TABLE vote (user TEXT, kind TEXT, id INTEGER, way INTEGER, PRIMARY KEY (user, kind, id));
CREATE TABLE subscription (user TEXT, board TEXT, PRIMARY KEY (user, board));
CREATE TABLE block (user TEXT, name TEXT, PRIMARY KEY (user, name));
CREATE VIEW listed AS SELECT thread.*, board.name AS board_name,
  score + (SELECT coalesce(sum(way), 0) FROM vote WHERE kind = 'thread' AND vote.id = thread.id) AS points,
  (SELECT count(*) FROM comment WHERE comment.thread = thread.id) AS comments
  FROM thread JOIN board ON board.slug = thread.board;
"""

# What each board is about.
TOPICS = {
    "Birds": ("owl boxes", "bird feeders", "dawn songs", "field guides", "binoculars", "robins", "migrating geese"),
    "Coffee": ("espresso machines", "cold brew", "bean storage", "milk foam", "hand grinders", "moka pots", "decaf"),
    "Cooking": ("sourdough", "lentil soup", "cast iron pans", "fresh pasta", "pickled onions", "curry", "rice cookers"),
    "Cycling": ("winter tires", "cargo bikes", "hill climbs", "gravel routes", "bike lights", "chain care", "tandems"),
    "Games": ("chess openings", "card games", "party games", "puzzle boxes", "solo play", "dice towers", "game nights"),
    "Gardening": ("tomato plants", "compost bins", "herb beds", "roses", "pruning", "raised beds", "greenhouses"),
    "Music": ("piano practice", "vinyl records", "choirs", "guitar strings", "jazz", "drum lessons", "violins"),
    "Photography": ("night shots", "film cameras", "portraits", "macro lenses", "tripods", "darkrooms", "printing"),
    "Running": (
        "trail shoes",
        "marathon plans",
        "stretching",
        "night runs",
        "sprint drills",
        "knee pain",
        "warm socks",
    ),
    "Woodwork": (
        "dovetail joints",
        "hand planes",
        "oak tables",
        "wood glue",
        "spoon carving",
        "workbenches",
        "sanding",
    ),
}
FRAMES = (
    "Thoughts on {}",
    "Getting started with {}",
    "Trouble with {}",
    "A guide to {}",
    "Questions about {}",
    "Saving money on {}",
    "What I learned about {}",
    "The best advice on {}",
)
_TEXTS = (
    "I have been at this for a year now and would like to hear from others.",
    "There is less about this on the web than I had hoped.",
    "My neighbor got me into it, and now I cannot stop.",
    "Please keep it friendly, I am new here.",
    "Long story short: it did not go as planned.",
    "Here is what worked for me, step by step.",
)
_REMARKS = (
    "Thanks for writing this up.",
    "I disagree, but it is well argued.",
    "Same here, every single time.",
    "Have you tried it the other way round?",
    "This saved my weekend.",
    "My grandmother swears by it.",
    "Too expensive for what it is.",
    "Start small and see.",
    "I would wait for spring.",
    "That is exactly the problem.",
    "The library has a good book on it.",
    "Could you post a picture?",
    "It depends on the weather.",
    "Not worth the trouble, in my view.",
    "I asked the same last year.",
    "Works for me since January.",
)
_BOARDS = 6
_THREADS = 60
_OWN_THREADS = 4
_OWN_COMMENTS = 12


def fill(into: sqlite3.Connection, draw: Random) -> None:
    """Draws a forum."""
    boards = sorted(draw.sample(list(TOPICS), _BOARDS))
    into.executemany(
        "INSERT INTO board VALUES (?, ?, ?)", [(name.lower(), name, draw.randrange(200, 9000)) for name in boards]
    )
    members = _members(into, draw)
    _threads(into, draw, boards, members)
    _own(into, draw, boards, members)


def nickname(draw: Random) -> str:
    """The name of a member."""
    return f"{draw.choice(FIRST_NAMES)}{draw.randrange(10, 100)}"


def title_of(draw: Random, board: str) -> str:
    """The title of a thread."""
    return draw.choice(FRAMES).format(draw.choice(TOPICS[board]))


def _members(into: sqlite3.Connection, draw: Random) -> list[str]:
    names = [USER]
    while len(names) < 20:
        name = nickname(draw)
        if name not in names:
            names.append(name)
    for name in names:
        joined = TODAY - timedelta(days=draw.randrange(400, 2000))
        bio = f"Likes {draw.choice(TOPICS[draw.choice(list(TOPICS))])}."
        into.execute(
            "INSERT INTO member VALUES (?, ?, ?, ?)", (name, bio, f"{name.lower()}@mail.test", joined.isoformat())
        )
    return names[1:]


def _threads(into: sqlite3.Connection, draw: Random, boards: list[str], members: list[str]) -> None:
    titles: list[tuple[str, str]] = []
    while len(titles) < _THREADS:
        # Each board in turn, so that all have equally many.
        board = boards[len(titles) % len(boards)]
        title = title_of(draw, board)
        if (board, title) not in titles:
            titles.append((board, title))
    draw.shuffle(titles)
    # No two threads have equal points.
    scores = draw.sample(range(5, 900), _THREADS)
    threads, comments = [], []
    day = TODAY - timedelta(days=240)
    for number, (board, title) in enumerate(titles, start=1):
        day += timedelta(days=draw.randrange(1, 5))
        author = USER if number % (_THREADS // _OWN_THREADS) == 7 else draw.choice(members)
        text = draw.choice(_TEXTS)
        threads.append((number, board.lower(), title, text, author, day.isoformat(), scores[number - 1]))
        # A few talk in each thread, some of them more than once.
        talking = draw.sample(members, 4)
        for _ in range(draw.randrange(1, 12)):
            said = day + timedelta(days=draw.randrange(0, 3))
            comments.append(
                (
                    number,
                    draw.choice(talking),
                    draw.choice(_REMARKS),
                    min(said, TODAY).isoformat(),
                    draw.randrange(0, 80),
                )
            )
    into.executemany("INSERT INTO thread VALUES (?, ?, ?, ?, ?, ?, ?)", threads)
    into.executemany("INSERT INTO comment (thread, author, text, day, score) VALUES (?, ?, ?, ?, ?)", comments)


def _own(into: sqlite3.Connection, draw: Random, boards: list[str], members: list[str]) -> None:
    """What the first user has done."""
    others = [row[0] for row in into.execute("SELECT id FROM thread WHERE author <> ? ORDER BY id", (USER,))]
    for thread in sorted(draw.sample(others, _OWN_COMMENTS)):
        day = TODAY - timedelta(days=draw.randrange(0, 4))
        into.execute(
            "INSERT INTO comment (thread, author, text, day, score) VALUES (?, ?, ?, ?, ?)",
            (thread, USER, draw.choice(_REMARKS), day.isoformat(), draw.randrange(0, 80)),
        )
    voted = draw.sample(others, 3)
    into.executemany("INSERT INTO vote VALUES (?, 'thread', ?, 1)", [(USER, thread) for thread in voted])
    subscribed = draw.sample(boards, _BOARDS // 2)
    into.executemany("INSERT INTO subscription VALUES (?, ?)", [(USER, board.lower()) for board in subscribed])
    into.execute("INSERT INTO block VALUES (?, ?)", (USER, draw.choice(members)))


STORE = Store("forum", SCHEMA, fill)
