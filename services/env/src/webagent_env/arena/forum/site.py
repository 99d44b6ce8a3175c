"""The forum's pages and forms."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.forum.data import USER
from webagent_env.arena.site import Problem, Site, Visit, paged
from webagent_env.arena.world import TODAY, Data

SORTS = {"New": "id DESC", "Top": "points DESC", "Most comments": "comments DESC, id DESC"}
PAGE = 6
COMMENTS_PAGE = 5
_WAYS = {"up": 1, "down": -1}
_LONGEST_TITLE = 80
SITE = Site("reddit", "__REDDIT__", "/forum", "forum", "The Square", login="/login", first_user=USER)


# ---- finding things --------------------------------------------------------------------------------------------------
@SITE.page("/")
def home(visit: Visit) -> web.Response:
    """The boards."""
    return visit.show("home", boards=boards(visit.data))


@SITE.page("/b/{board}.html")
def board(visit: Visit) -> web.Response:
    """One board's threads."""
    one = visit.data.one("SELECT * FROM board WHERE slug = ?", visit.part("board"))
    if one is None:
        raise web.HTTPNotFound(text="There is no such board.")
    sort = visit.asked("sort", "New")
    query = f"SELECT * FROM listed WHERE board = ? ORDER BY {SORTS.get(sort, 'id DESC')}"  # noqa: S608 - our own text
    return visit.show(
        "board",
        board=one,
        sorts=tuple(SORTS),
        sort=sort,
        subscribed=one["slug"] in subscriptions(visit.data, visit.user),
        **paged(visit, visit.data.all(query, one["slug"]), PAGE),
    )


@SITE.action("/b/{board}.html/subscribe", private=True)
def subscribe(visit: Visit) -> web.Response:
    """Subscribes to a board, or leaves it."""
    key = visit.user, visit.part("board")
    if key[1] in subscriptions(visit.data, visit.user):
        visit.data.do("DELETE FROM subscription WHERE user = ? AND board = ?", *key)
        return visit.go(f"/b/{key[1]}.html", "You have left the board.")
    visit.data.do("INSERT INTO subscription VALUES (?, ?)", *key)
    return visit.go(f"/b/{key[1]}.html", "You are subscribed.")


@SITE.page("/search")
def search(visit: Visit) -> web.Response:
    """Threads whose title has all the words, the newest first."""
    words = visit.asked("q")
    wanted = [f"%{word}%" for word in words.split()]
    where = " AND ".join("title LIKE ?" for _ in wanted) or "0"
    found = visit.data.all(f"SELECT * FROM listed WHERE {where} ORDER BY id DESC", *wanted)  # noqa: S608 - our own text
    return visit.show("search", words=words, **paged(visit, found, PAGE))


def boards(data: Data) -> list[Row]:
    """All boards by name."""
    return data.all(
        "SELECT board.*, (SELECT count(*) FROM thread WHERE board = slug) AS threads FROM board ORDER BY name"
    )


def subscriptions(data: Data, user: str) -> list[str]:
    """The boards that somebody is subscribed to."""
    return [row["board"] for row in data.all("SELECT board FROM subscription WHERE user = ? ORDER BY board", user)]


# ---- threads and comments --------------------------------------------------------------------------------------------
@SITE.page(r"/b/{board}/{id:\d+}.html")
def thread(visit: Visit) -> web.Response:
    """One thread with its comments, the oldest first."""
    one = _thread(visit)
    comments = visit.data.all(
        "SELECT comment.*, coalesce(way, 0) AS way,"
        " score + (SELECT coalesce(sum(way), 0) FROM vote WHERE kind = 'comment' AND vote.id = comment.id) AS points"
        " FROM comment LEFT JOIN vote ON kind = 'comment' AND user = ? AND vote.id = comment.id"
        " WHERE thread = ? ORDER BY comment.id",
        *(visit.user, one["id"]),
    )
    way = visit.data.value("SELECT way FROM vote WHERE user = ? AND kind = 'thread' AND id = ?", visit.user, one["id"])
    return visit.show(
        "thread", thread=one, way=way or 0, address=address_of(one), **paged(visit, comments, COMMENTS_PAGE)
    )


@SITE.action(r"/b/{board}/{id:\d+}.html/comment", private=True)
def write_comment(visit: Visit) -> web.Response:
    """Adds a comment at the end."""
    one = _thread(visit)
    visit.data.do(
        "INSERT INTO comment (thread, author, text, day, score) VALUES (?, ?, ?, ?, 1)",
        *(one["id"], visit.user, visit.given("text", "Comment"), TODAY.isoformat()),
    )
    last = -(-(one["comments"] + 1) // COMMENTS_PAGE)
    return visit.go(f"{address_of(one)}?p={last}", "Your comment is posted.")


@SITE.action(r"/b/{board}/{id:\d+}.html/{way:up|down}", private=True)
def vote_thread(visit: Visit) -> web.Response:
    """Votes on a thread, or takes that vote back."""
    one = _thread(visit)
    _vote(visit, "thread", one["id"])
    return visit.go(address_of(one))


@SITE.action(r"/comment/{id:\d+}/{way:up|down}", private=True)
def vote_comment(visit: Visit) -> web.Response:
    """The same on a comment."""
    one = visit.data.one(
        "SELECT listed.*, comment.id AS comment FROM listed JOIN comment ON thread = listed.id WHERE comment.id = ?",
        visit.part("id"),
    )
    if one is None:
        raise web.HTTPNotFound(text="There is no such comment.")
    _vote(visit, "comment", one["comment"])
    return visit.go(f"{address_of(one)}?p={visit.number('p')}")


@SITE.action(r"/comment/{id:\d+}/delete", private=True)
def delete_comment(visit: Visit) -> web.Response:
    """Deletes a comment of one's own."""
    visit.data.do("DELETE FROM comment WHERE id = ? AND author = ?", visit.part("id"), visit.user)
    return visit.go(f"/u/{visit.user}/comments.html?p={visit.number('p')}", "The comment is deleted.")


@SITE.page("/submit.html", private=True)
def submit(visit: Visit) -> web.Response:
    """The form for a new thread."""
    return visit.show("submit", boards=[each["name"] for each in boards(visit.data)])


@SITE.action("/submit.html", private=True)
def start(visit: Visit) -> web.Response:
    """Starts a thread."""
    name, title = visit.given("board", "Board"), _title(visit)
    slug = visit.data.value("SELECT slug FROM board WHERE name = ?", name)
    if slug is None:
        raise Problem("There is no such board.")
    number = visit.data.do(
        "INSERT INTO thread (board, title, text, author, day, score) VALUES (?, ?, ?, ?, ?, 1)",
        *(slug, title, visit.given("text", "Text"), visit.user, TODAY.isoformat()),
    )
    return visit.go(f"/b/{slug}/{number:05}.html", "Your thread is posted.")


@SITE.page(r"/b/{board}/{id:\d+}/edit.html", private=True)
def edit(visit: Visit) -> web.Response:
    """The form to change a thread of one's own."""
    one = _thread(visit)
    return visit.show("edit", thread=one, address=address_of(one))


@SITE.action(r"/b/{board}/{id:\d+}/edit.html", private=True)
def save(visit: Visit) -> web.Response:
    """Changes it."""
    one = _thread(visit)
    if one["author"] != visit.user:
        raise Problem("This thread is not yours.")
    visit.data.do(
        "UPDATE thread SET title = ?, text = ? WHERE id = ?", _title(visit), visit.given("text", "Text"), one["id"]
    )
    return visit.go(address_of(one), "The thread is saved.")


def address_of(one: Row) -> str:
    """A thread's address."""
    return f"/b/{one['board']}/{one['id']:05}.html"


def _thread(visit: Visit) -> Row:
    found = visit.data.one("SELECT * FROM listed WHERE id = ? AND board = ?", visit.part("id"), visit.part("board"))
    if found is None:
        raise web.HTTPNotFound(text="There is no such thread.")
    return found


def _title(visit: Visit) -> str:
    title = visit.given("title", "Title")
    if len(title) > _LONGEST_TITLE:
        raise Problem(f"Title must have at most {_LONGEST_TITLE} letters.")
    return title


def _vote(visit: Visit, kind: str, number: int) -> None:
    way = _WAYS[visit.part("way")]
    key = visit.user, kind, number
    before = visit.data.value("SELECT way FROM vote WHERE user = ? AND kind = ? AND id = ?", *key)
    visit.data.do("DELETE FROM vote WHERE user = ? AND kind = ? AND id = ?", *key)
    if before != way:
        visit.data.do("INSERT INTO vote VALUES (?, ?, ?, ?)", *key, way)
