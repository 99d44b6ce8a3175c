"""A site of the arena: pages and forms over the data of the session that visits.

A page answers GET with its template; a form answers POST and sends the browser on to a page, with a notice where there
is something to say. A form that is filled in wrongly says so on the page that it was on. Which session visits is known
by a cookie that env sets, so a site's addresses are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from aiohttp import web

from webagent_env.arena.world import Data, World

_LONGEST_ASKED = 200
_BILLION = 10**9


class Problem(Exception):  # noqa: N818 - said to whoever filled in the form
    """What is wrong with what was filled in."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a session."""

    site: Site
    world: World
    request: web.Request
    form: Mapping[str, str]

    @property
    def data(self) -> Data:
        """The site's data in this session's world."""
        return self.world.data(self.site.store)

    @property
    def user(self) -> str:
        """Who is signed in; empty for nobody."""
        return self.world.users.get(self.site.name, "")

    def part(self, name: str) -> str:
        """A part of the address's path."""
        return self.request.match_info[name]

    def asked(self, name: str, default: str = "") -> str:
        """A value of the address's query; no longer than anybody searches for."""
        return self.request.query.get(name, default).strip()[:_LONGEST_ASKED]

    def number(self, name: str, default: int = 1) -> int:
        """The same as a whole number of at least 1; what is none counts as the default."""
        number = whole(self.asked(name))
        return default if number is None else max(1, number)

    def hidden(self, name: str) -> str:
        """What a form's hidden field holds; empty where the form is not the site's own."""
        return self.form.get(name, "")

    def given(self, name: str, what: str) -> str:
        """What a form's field holds; a Problem if that is nothing."""
        text = self.form.get(name, "").strip()
        if not text:
            raise Problem(f"{what} is required.")
        return text

    def given_number(self, name: str, what: str, least: int, most: int) -> int:
        """A whole number that a form's field holds."""
        number = whole(self.given(name, what))
        if number is None or not least <= number <= most:
            raise Problem(f"{what} must be a number from {least} to {most}.")
        return number

    def show(self, page: str, **values: object) -> web.Response:
        """A page of the site."""
        return self.site.render(self, page, values)

    def go(self, path: str, notice: str = "") -> web.Response:
        """Sends the browser to another page of the site."""
        if notice:
            self.world.notices[self.site.name] = notice
        return web.Response(status=303, headers={"Location": quote(self.site.prefix + path, safe="/?&=%+@")})


Handler = Callable[[Visit], web.Response]


@dataclass(frozen=True)
class Site:
    """One site. `name` and `placeholder` are WebArena's, `prefix` begins its paths, `store` is its data."""

    name: str
    placeholder: str
    prefix: str
    store: str
    title: str
    # The page that asks to sign in, where the site has one.
    login: str = ""
    # Who is signed in when a session begins.
    first_user: str = ""
    # What a page shows in the frame around it, such as the number of things in the cart.
    frame: Callable[[Visit], dict[str, object]] = lambda _: {}
    routes: list[tuple[str, str, Handler]] = field(default_factory=list)

    def page(self, path: str, *, private: bool = False) -> Callable[[Handler], Handler]:
        """Registers what answers GET on a path; a private page is for those who are signed in."""
        return self._register("GET", path, private=private)

    def action(self, path: str, *, private: bool = False) -> Callable[[Handler], Handler]:
        """Registers what answers POST on a path."""
        return self._register("POST", path, private=private)

    def let_sign_in(
        self, known: Callable[[Visit, str], str | None], password: str, *, by: str = "name", label: str, home: str = "/"
    ) -> None:
        """Registers the form at /login and the way out at /logout.

        `known` says whom a name stands for, None for nobody; all of them have the same password. `by` is the form's
        field of the name and `label` what stands before it; `home` is the page after signing in.
        """

        def form(visit: Visit) -> web.Response:
            return visit.show("login")

        def sign_in(visit: Visit) -> web.Response:
            name, given = visit.given(by, label), visit.given("password", "Password")
            user = known(visit, name)
            if user is None or given != password:
                raise Problem(f"{label} or password is wrong.")
            visit.world.users[self.name] = user
            return visit.go(home, "You are signed in.")

        def sign_out(visit: Visit) -> web.Response:
            visit.world.users.pop(self.name, None)
            return visit.go("/", "You are signed out.")

        self.page("/login")(form)
        self.action("/login")(sign_in)
        self.action("/logout")(sign_out)

    def render(self, visit: Visit, page: str, values: Mapping[str, object]) -> web.Response:
        """A page in the site's frame."""
        notice = visit.world.notices.pop(self.name, "")
        around = {"site": self, "user": visit.user, "notice": notice}
        text = _PAGES.get_template(f"{self.prefix[1:]}/pages/{page}.html").render(
            **around, **self.frame(visit), **values
        )
        return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})

    def _register(self, method: str, path: str, *, private: bool) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            def guarded(visit: Visit) -> web.Response:
                if private and not visit.user:
                    return visit.go(self.login, "Please sign in.")
                return handler(visit)

            self.routes.append((method, self.prefix + path, guarded))
            return handler

        return register


def whole(text: str) -> int | None:
    """The whole number that a text is, None if it is none; what is above a billion counts as that."""
    if not text.isdecimal():
        return None
    return min(int(text), _BILLION) if len(text) <= _LONGEST_ASKED else _BILLION


def paged(visit: Visit, items: list[Any], size: int) -> dict[str, object]:
    """The part of a list that the address asks for, and what its page links need."""
    last = max(1, -(-len(items) // size))
    number = min(visit.number("p"), last)
    query = {key: value for key, value in visit.request.query.items() if key != "p"}

    def link(to: int) -> str:
        return f"{visit.request.path}?{urlencode({**query, 'p': to})}"

    return {
        "items": items[(number - 1) * size : number * size],
        "count": len(items),
        "pages": Pages(number, last, link),
    }


@dataclass(frozen=True, slots=True)
class Pages:
    """Which page of a list is shown, and the addresses of the others."""

    number: int
    last: int
    link: Callable[[int], str]


def money(cents: int) -> str:
    """An amount as all sites write it: $1,234.50."""
    return f"${cents / 100:,.2f}"


def day(iso: str) -> str:
    """A date as all sites write it: May 3, 2024."""
    at = date.fromisoformat(iso)
    return f"{at:%b} {at.day}, {at.year}"


_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters.update(money=money, day=day)
