"""Intent templates of the forum: finding threads, reading them, voting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from sqlite3 import Row

from webagent_env.arena.forum.data import PASSWORD, TOPICS, USER, title_of
from webagent_env.arena.forum.people import votes_of
from webagent_env.arena.forum.site import address_of, boards
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, answer, not_possible, shows, stops_at
from webagent_env.arena.world import World

FORUM = Chapter("reddit", start=("__REDDIT__/",))
_VOTES = "[...document.querySelectorAll('.vote')].map((each) => each.dataset.vote).join('; ')"
_PLACES = ("most", "second most", "third most", "fourth most", "fifth most", "sixth most", "seventh most")


def threads(world: World, draw: Random, where: str = "1") -> list[Row]:
    """The threads of which a condition holds, in random order."""
    found = world.data("forum").all(f"SELECT * FROM listed WHERE {where} ORDER BY id")  # noqa: S608 - our own text
    draw.shuffle(found)
    return found


def absent_title(world: World, draw: Random) -> str:
    """The title of a thread that nobody started."""
    held = {row["title"] for row in world.data("forum").all("SELECT title FROM thread")}
    while True:
        title = title_of(draw, draw.choice(list(TOPICS)))
        if title not in held:
            return title


def votes_are(world: World, cast: Iterable[tuple[str, int, int]], user: str = USER) -> dict[str, object]:
    """The rule that somebody's votes are those at the start and these: (thread or comment, its number, 1 or -1)."""
    before = [(row["kind"], row["id"], row["way"]) for row in votes_of(world.data("forum"), user)]
    after = "; ".join(f"{kind} {number} {way}" for kind, number, way in sorted({*before, *cast}))
    return shows(("__REDDIT__/votes.html", _VOTES, after))


def unvoted(world: World, draw: Random) -> list[Row]:
    """Threads of others that have no vote of the first user, in random order."""
    held = {row["id"] for row in votes_of(world.data("forum"), USER)}
    return [each for each in threads(world, draw, f"author <> '{USER}'") if each["id"] not in held]


# ---- answers ---------------------------------------------------------------------------------------------------------
@FORUM.intent("forum-author", 'Who started the thread "{{title}}" on the forum? Answer with the name. ' + OR_NOT)
def author(world: World, draw: Random) -> Iterator[Goal]:
    """Search, read."""
    for each in threads(world, draw):
        yield Goal({"title": each["title"]}, answer(each["author"]))
        if draw.random() < 0.25:
            yield Goal({"title": absent_title(world, draw)}, not_possible())


@FORUM.intent("forum-said", 'How many comments did {{name}} write in the thread "{{title}}"? Answer with the number.')
def said(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, count on every page of comments."""
    query = "SELECT author, count(*) AS comments FROM comment WHERE thread = ? GROUP BY author ORDER BY author"
    for each in threads(world, draw, "comments > 3"):
        one = draw.choice(world.data("forum").all(query, each["id"]))
        yield Goal({"name": one["author"], "title": each["title"]}, answer(str(one["comments"])))


@FORUM.intent(
    "forum-started",
    'How many threads did the author of the thread "{{title}}" start in all? Answer with the number. ' + OR_NOT,
)
def started(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, author, read."""
    query = "SELECT count(*) FROM thread WHERE author = ?"
    for each in threads(world, draw):
        yield Goal({"title": each["title"]}, answer(str(world.data("forum").value(query, each["author"]))))
        if draw.random() < 0.2:
            yield Goal({"title": absent_title(world, draw)}, not_possible())


@FORUM.intent(
    "forum-lively",
    "How many threads of the board {{board}} have more than {{most}} comments? Answer with the number.",
    held_out=True,
)
def lively(world: World, draw: Random) -> Iterator[Goal]:
    """Board, sort, count on every page."""
    for each in boards(world.data("forum")):
        for most in range(2, 11):
            query = "SELECT count(*) FROM listed WHERE board = ? AND comments > ?"
            number = world.data("forum").value(query, each["slug"], most)
            yield Goal({"board": each["name"], "most": str(most)}, answer(str(number)))


@FORUM.intent(
    "forum-points",
    'How many points do {{name}}\'s threads have together? Answer with the number. One of them is "{{title}}".',
)
def points(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, author, add on every page."""
    query = "SELECT sum(points) FROM listed WHERE author = ?"
    for each in threads(world, draw, f"author <> '{USER}'"):
        total = world.data("forum").value(query, each["author"])
        yield Goal({"name": each["author"], "title": each["title"]}, answer(str(total)))


# ---- navigation ------------------------------------------------------------------------------------------------------
@FORUM.intent("forum-top", "Open the thread with the {{place}} points in the board {{board}}.")
def top(world: World, draw: Random) -> Iterator[Goal]:
    """Board, sort, further pages, open."""
    for each in boards(world.data("forum")):
        rows = world.data("forum").all("SELECT * FROM listed WHERE board = ? ORDER BY points DESC", each["slug"])
        for place, row in zip(_PLACES, rows, strict=False):
            yield Goal({"place": place, "board": each["name"]}, stops_at(f"__REDDIT__{address_of(row)}"))


@FORUM.intent("forum-commenter", 'Open the profile of whoever wrote the {{place}} comment in the thread "{{title}}".')
def commenter(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, further pages, open."""
    for each in threads(world, draw):
        comments = world.data("forum").all("SELECT * FROM comment WHERE thread = ? ORDER BY id", each["id"])
        place, one = draw.choice((("first", comments[0]), ("last", comments[-1])))
        yield Goal({"place": place, "title": each["title"]}, stops_at(f"__REDDIT__/u/{one['author']}.html"))


# ---- votes -----------------------------------------------------------------------------------------------------------
@FORUM.intent("forum-vote", '{{way}} the thread "{{title}}" on the forum. ' + OR_NOT)
def vote(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, vote."""
    for each in unvoted(world, draw):
        way, number = draw.choice((("Upvote", 1), ("Downvote", -1)))
        rule = votes_are(world, [("thread", each["id"], number)])
        yield Goal({"way": way, "title": each["title"]}, rule)
        if draw.random() < 0.15:
            yield Goal({"way": way, "title": absent_title(world, draw)}, not_possible())


@FORUM.intent("forum-vote-all", 'Vote {{way}} every comment that {{name}} wrote in the thread "{{title}}".')
def vote_all(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, vote on every page of comments."""
    query = "SELECT id, author FROM comment WHERE thread = ? AND author <> ? ORDER BY id"
    for each in threads(world, draw, "comments > 4"):
        comments = world.data("forum").all(query, each["id"], USER)
        name = draw.choice(comments)["author"]
        way, number = draw.choice((("up", 1), ("down", -1)))
        rule = votes_are(world, [("comment", one["id"], number) for one in comments if one["author"] == name])
        yield Goal({"way": way, "name": name, "title": each["title"]}, rule)


@FORUM.intent(
    "forum-vote-boards",
    "Upvote the newest thread of the board {{one}} and downvote the thread with the {{place}} points in the board"
    " {{other}}.",
)
def vote_boards(world: World, draw: Random) -> Iterator[Goal]:
    """Board, open, vote, another board, sort, open, vote."""
    data, held = world.data("forum"), {row["id"] for row in votes_of(world.data("forum"), USER)}
    for _ in range(100):
        one, other = draw.sample(boards(data), 2)
        place = draw.randrange(len(_PLACES))
        newest = data.one("SELECT * FROM listed WHERE board = ? ORDER BY id DESC", one["slug"])
        best = data.all("SELECT * FROM listed WHERE board = ? ORDER BY points DESC", other["slug"])[place]
        assert newest is not None
        if not {newest["id"], best["id"]} & held:
            rule = votes_are(world, [("thread", newest["id"], 1), ("thread", best["id"], -1)])
            yield Goal({"one": one["name"], "other": other["name"], "place": _PLACES[place]}, rule)


@FORUM.intent(
    "forum-sign-in",
    'Sign in to the forum as {{name}} with the password {{password}} and upvote the thread "{{title}}".',
    signed_out=True,
)
def sign_in(world: World, draw: Random) -> Iterator[Goal]:
    """Sign in, search, open, vote."""
    names = [
        row["name"] for row in world.data("forum").all("SELECT name FROM member WHERE name <> ? ORDER BY name", USER)
    ]
    for each in threads(world, draw):
        name = draw.choice(names)
        rule = votes_are(world, [("thread", each["id"], 1)], name)
        yield Goal({"name": name, "password": PASSWORD, "title": each["title"]}, rule)
