"""The forum's pages about its members: signing in, profiles, votes, settings, and whom one has blocked."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.forum.data import PASSWORD
from webagent_env.arena.forum.site import PAGE, SITE, boards, subscriptions
from webagent_env.arena.site import Problem, Visit, paged
from webagent_env.arena.world import Data

# ---- signing in ------------------------------------------------------------------------------------------------------
SITE.let_sign_in(
    lambda visit, name: visit.data.value("SELECT name FROM member WHERE name = ?", name), PASSWORD, label="Name"
)


# ---- profiles --------------------------------------------------------------------------------------------------------
@SITE.page("/u/{name}.html")
def profile(visit: Visit) -> web.Response:
    """A member and the threads that this member started, the newest first."""
    one = _member(visit)
    threads = threads_of(visit.data, one["name"])
    blocked = one["name"] in blocks(visit.data, visit.user)
    return visit.show("profile", member=one, blocked=blocked, **paged(visit, threads, PAGE))


@SITE.page("/u/{name}/comments.html")
def comments(visit: Visit) -> web.Response:
    """What a member wrote elsewhere, the newest first."""
    one = _member(visit)
    return visit.show("comments", member=one, **paged(visit, comments_of(visit.data, one["name"]), PAGE))


@SITE.action("/u/{name}.html/block", private=True)
def block(visit: Visit) -> web.Response:
    """Blocks a member, or no longer."""
    key = visit.user, _member(visit)["name"]
    if key[1] in blocks(visit.data, visit.user):
        visit.data.do("DELETE FROM block WHERE user = ? AND name = ?", *key)
        return visit.go(f"/u/{key[1]}.html", f"{key[1]} is no longer blocked.")
    visit.data.do("INSERT INTO block VALUES (?, ?)", *key)
    return visit.go(f"/u/{key[1]}.html", f"{key[1]} is blocked.")


@SITE.page("/settings.html", private=True)
def settings(visit: Visit) -> web.Response:
    """Who one is, whom one has blocked, and where one is subscribed."""
    one = visit.data.one("SELECT * FROM member WHERE name = ?", visit.user)
    held = subscriptions(visit.data, visit.user)
    names = [each["name"] for each in boards(visit.data) if each["slug"] in held]
    return visit.show("settings", member=one, blocked=blocks(visit.data, visit.user), boards=names)


@SITE.action("/settings.html", private=True)
def change(visit: Visit) -> web.Response:
    """Changes one's profile."""
    bio, email = visit.given("bio", "Bio"), visit.given("email", "Email")
    if "@" not in email:
        raise Problem("Email must be an address.")
    visit.data.do("UPDATE member SET bio = ?, email = ? WHERE name = ?", bio, email, visit.user)
    return visit.go("/settings.html", "Your settings are saved.")


@SITE.page("/votes.html", private=True)
def votes(visit: Visit) -> web.Response:
    """What one has voted on."""
    return visit.show("votes", items=votes_of(visit.data, visit.user))


def threads_of(data: Data, name: str) -> list[Row]:
    """The threads that a member started."""
    return data.all("SELECT * FROM listed WHERE author = ? ORDER BY id DESC", name)


def comments_of(data: Data, name: str) -> list[Row]:
    """A member's comments, each with its thread's title."""
    return data.all(
        "SELECT comment.*, board, title FROM comment JOIN thread ON thread.id = thread WHERE comment.author = ?"
        " ORDER BY comment.id DESC",
        name,
    )


def votes_of(data: Data, name: str) -> list[Row]:
    """A member's votes, each with the title of the thread."""
    return data.all(
        "SELECT kind, vote.id, way, title FROM vote JOIN thread ON thread.id = CASE kind WHEN 'thread' THEN vote.id"
        " ELSE (SELECT thread FROM comment WHERE comment.id = vote.id) END WHERE user = ? ORDER BY kind, vote.id",
        name,
    )


def blocks(data: Data, name: str) -> list[str]:
    """Whom a member has blocked."""
    return [row["name"] for row in data.all("SELECT name FROM block WHERE user = ? ORDER BY name", name)]


def _member(visit: Visit) -> Row:
    found = visit.data.one("SELECT * FROM member WHERE name = ?", visit.part("name"))
    if found is None:
        raise web.HTTPNotFound(text="There is no such member.")
    return found
