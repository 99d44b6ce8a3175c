"""The code host's pages of projects: lists, stars, members, commits, settings."""

from __future__ import annotations

import re
from datetime import date
from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.code.data import ROLES, USER, VISIBILITIES
from webagent_env.arena.site import Problem, Site, Visit, paged
from webagent_env.arena.world import TODAY, Data

SORTS = {"Name": "slug", "Most stars": "starred DESC", "Newest": "created DESC, slug"}
PAGE = 6
_LEADING = {"Maintainer", "Owner"}
_NAME = re.compile(r"[a-z][a-z0-9-]{2,40}", re.ASCII)


def _frame(visit: Visit) -> dict[str, object]:
    return {"waiting": visit.data.value("SELECT count(*) FROM todo WHERE user = ?", visit.user)}


SITE = Site("gitlab", "__GITLAB__", "/code", "code", "Workbench", login="/login", first_user=USER, frame=_frame)


# ---- finding projects ------------------------------------------------------------------------------------------------
@SITE.page("/")
def home(visit: Visit) -> web.Response:
    """All projects."""
    sort = visit.asked("sort", "Name")
    query = f"SELECT * FROM listed ORDER BY {SORTS.get(sort, 'slug')}"  # noqa: S608 - our own text
    return visit.show("projects", sort=sort, sorts=tuple(SORTS), **paged(visit, visit.data.all(query), PAGE))


@SITE.page("/search")
def search(visit: Visit) -> web.Response:
    """Projects with these words in their name."""
    words = visit.asked("q")
    found = visit.data.all("SELECT * FROM listed WHERE slug LIKE ? ORDER BY slug", f"%{words}%")
    return visit.show("search", words=words, **paged(visit, found, PAGE))


@SITE.page("/stars.html", private=True)
def stars(visit: Visit) -> web.Response:
    """Projects that one has given a star."""
    return visit.show("stars", items=stars_of(visit.data, visit.user))


def stars_of(data: Data, user: str) -> list[str]:
    """Projects that somebody has given a star."""
    return [row["project"] for row in data.all("SELECT project FROM star WHERE user = ? ORDER BY project", user)]


# ---- one project -----------------------------------------------------------------------------------------------------
@SITE.page("/p/{slug}.html")
def project(visit: Visit) -> web.Response:
    """One project, and the ways to all that belongs to it."""
    one = project_of(visit)
    held = one["slug"] in stars_of(visit.data, visit.user)
    return visit.show("project", project=one, held=held, role=role_of(visit.data, one["slug"], visit.user))


@SITE.action("/p/{slug}.html/star", private=True)
def star(visit: Visit) -> web.Response:
    """Gives a star, or takes it back."""
    slug = project_of(visit)["slug"]
    if slug in stars_of(visit.data, visit.user):
        visit.data.do("DELETE FROM star WHERE user = ? AND project = ?", visit.user, slug)
        return visit.go(f"/p/{slug}.html", "The star is taken back.")
    visit.data.do("INSERT INTO star VALUES (?, ?)", visit.user, slug)
    return visit.go(f"/p/{slug}.html", "You gave it a star.")


@SITE.page("/new.html", private=True)
def new_project(visit: Visit) -> web.Response:
    """The form for a new project."""
    return visit.show("new_project", visibilities=VISIBILITIES)


@SITE.action("/new.html", private=True)
def create_project(visit: Visit) -> web.Response:
    """Creates a project."""
    slug, about = visit.given("name", "Name"), visit.given("about", "Description")
    if _NAME.fullmatch(slug) is None:
        raise Problem("Name must be of small letters, digits and hyphens.")
    if visit.data.one("SELECT 1 FROM project WHERE slug = ?", slug):
        raise Problem("There is a project of that name.")
    values = slug, about, chosen(visit, "visibility", "Visibility", VISIBILITIES), TODAY.isoformat()
    visit.data.do("INSERT INTO project VALUES (?, ?, ?, 0, ?)", *values)
    visit.data.do("INSERT INTO member VALUES (?, ?, 'Owner')", slug, visit.user)
    visit.data.do("INSERT INTO branch VALUES (?, 'main')", slug)
    return visit.go(f"/p/{slug}.html", "The project is created.")


@SITE.page("/p/{slug}/settings.html", private=True)
def settings(visit: Visit) -> web.Response:
    """The form to change a project of one's own."""
    return visit.show("settings", project=_own(visit), visibilities=VISIBILITIES)


@SITE.action("/p/{slug}/settings.html", private=True)
def save_settings(visit: Visit) -> web.Response:
    """Changes it."""
    slug, about = _own(visit)["slug"], visit.given("about", "Description")
    visibility = chosen(visit, "visibility", "Visibility", VISIBILITIES)
    visit.data.do("UPDATE project SET about = ?, visibility = ? WHERE slug = ?", about, visibility, slug)
    return visit.go(f"/p/{slug}.html", "The settings are saved.")


# ---- members and commits ---------------------------------------------------------------------------------------------
@SITE.page("/p/{slug}/members.html")
def members(visit: Visit) -> web.Response:
    """Who works on a project."""
    one = project_of(visit)
    people = members_of(visit.data, one["slug"])
    may = role_of(visit.data, one["slug"], visit.user) in _LEADING
    return visit.show("members", project=one, members=people, roles=ROLES, may=may)


@SITE.action("/p/{slug}/members.html", private=True)
def invite(visit: Visit) -> web.Response:
    """Invites a member, or gives one another role."""
    slug, name = _led(visit)["slug"], visit.given("name", "User")
    if visit.data.one("SELECT 1 FROM person WHERE name = ?", name) is None:
        raise Problem(f"There is no user {name}.")
    role = chosen(visit, "role", "Role", ROLES)
    visit.data.do(
        "INSERT INTO member VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET role = excluded.role", slug, name, role
    )
    return visit.go(f"/p/{slug}/members.html", f"{name} is a member.")


@SITE.action("/p/{slug}/members.html/remove", private=True)
def remove(visit: Visit) -> web.Response:
    """Removes a member."""
    slug, name = _led(visit)["slug"], visit.given("name", "User")
    visit.data.do("DELETE FROM member WHERE project = ? AND name = ?", slug, name)
    return visit.go(f"/p/{slug}/members.html", f"{name} is no longer a member.")


@SITE.page("/p/{slug}/commits.html")
def commits(visit: Visit) -> web.Response:
    """What was changed, the newest first, or what a filter leaves of it."""
    one, author = project_of(visit), visit.asked("author")
    first, last = _date(visit, "first"), _date(visit, "last")
    found = visit.data.all(
        "SELECT * FROM commits WHERE project = ? AND (? = '' OR author = ?) AND day BETWEEN ? AND ? ORDER BY id DESC",
        *(one["slug"], author, author, first or "0", last or "9"),
    )
    return visit.show("commits", project=one, author=author, first=first, last=last, **paged(visit, found, PAGE))


# ---- what pages of a project share -----------------------------------------------------------------------------------
def project_of(visit: Visit) -> Row:
    """The project that an address is about."""
    found = visit.data.one("SELECT * FROM listed WHERE slug = ?", visit.part("slug"))
    if found is None:
        raise web.HTTPNotFound(text="There is no such project.")
    return found


def members_of(data: Data, slug: str) -> list[Row]:
    """A project's members by name."""
    return data.all("SELECT * FROM member WHERE project = ? ORDER BY name", slug)


def role_of(data: Data, slug: str, name: str) -> str:
    """The role that somebody has in a project; empty for none."""
    return data.value("SELECT role FROM member WHERE project = ? AND name = ?", slug, name) or ""


def chosen(visit: Visit, name: str, what: str, options: tuple[str, ...]) -> str:
    """What is chosen in a dropdown; a Problem if that is none of its options."""
    text = visit.given(name, what)
    if text not in options:
        raise Problem(f"{what} must be one of {', '.join(options)}.")
    return text


def date_given(text: str, what: str) -> str:
    """A date that a form's field holds; empty for none."""
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise Problem(f"{what} must be a date such as 2024-05-31.") from error


def _date(visit: Visit, name: str) -> str:
    try:
        return date_given(visit.asked(name), name)
    except Problem:
        return ""


def _own(visit: Visit) -> Row:
    one = project_of(visit)
    if role_of(visit.data, one["slug"], visit.user) != "Owner":
        raise Problem("Only the owner may do this.")
    return one


def _led(visit: Visit) -> Row:
    one = project_of(visit)
    if role_of(visit.data, one["slug"], visit.user) not in _LEADING:
        raise Problem("Only maintainers and owners may do this.")
    return one
