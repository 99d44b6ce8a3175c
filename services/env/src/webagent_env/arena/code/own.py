"""The code host's pages of one's own: signing in, to-dos, what one is to do, the profile."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.code.data import PASSWORD
from webagent_env.arena.code.site import PAGE, SITE
from webagent_env.arena.site import Visit, paged
from webagent_env.arena.world import Data

SITE.let_sign_in(
    lambda visit, name: visit.data.value("SELECT name FROM person WHERE name = ?", name), PASSWORD, label="User"
)


@SITE.page("/todos.html", private=True)
def todos(visit: Visit) -> web.Response:
    """What waits for one."""
    return visit.show("todos", **paged(visit, todos_of(visit.data, visit.user), PAGE))


@SITE.action(r"/todos/{id:\d+}/done", private=True)
def done(visit: Visit) -> web.Response:
    """Is done with one of them."""
    visit.data.do("DELETE FROM todo WHERE id = ? AND user = ?", visit.part("id"), visit.user)
    return visit.go(f"/todos.html?p={visit.number('p')}", "One less.")


def todos_of(data: Data, user: str) -> list[Row]:
    """What waits for somebody, the newest first."""
    return data.all("SELECT * FROM todo WHERE user = ? ORDER BY id DESC", user)


@SITE.page("/mine.html", private=True)
def mine(visit: Visit) -> web.Response:
    """Open issues that one is to do, those that are due first at the top."""
    return visit.show("mine", **paged(visit, assigned_to(visit.data, visit.user), PAGE))


def assigned_to(data: Data, user: str) -> list[Row]:
    """Open issues that somebody is to do, by when they are due."""
    return data.all(
        "SELECT * FROM issue WHERE state = 'open' AND assignee = ? ORDER BY due = '', due, project, number", user
    )


@SITE.page("/profile.html", private=True)
def profile(visit: Visit) -> web.Response:
    """Who one is."""
    return visit.show("profile", person=visit.data.one("SELECT * FROM person WHERE name = ?", visit.user))


@SITE.action("/profile.html", private=True)
def save_profile(visit: Visit) -> web.Response:
    """Changes it."""
    values = visit.given("status", "Status"), visit.given("location", "Location"), visit.user
    visit.data.do("UPDATE person SET status = ?, location = ? WHERE name = ?", *values)
    return visit.go("/profile.html", "Your profile is saved.")
