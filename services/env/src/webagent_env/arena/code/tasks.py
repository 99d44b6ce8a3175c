"""Intent templates of the code host: projects, stars, members, commits, one's own pages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from sqlite3 import Row

from webagent_env.arena.code.data import ABOUTS, PASSWORD, ROLES, SECOND_WORDS, USER, VISIBILITIES, slug_of
from webagent_env.arena.code.own import assigned_to, todos_of
from webagent_env.arena.code.site import PAGE, members_of, stars_of
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, also, answer, not_possible, shows, stops_at, texts_of
from webagent_env.arena.words import TOWNS, words
from webagent_env.arena.world import TODAY, World

CODE = Chapter("gitlab", start=("__GITLAB__/",))
_PROJECT = "document.querySelector('#project').dataset.summary"
_PERSON = "document.querySelector('#person').dataset.summary"
_MEMBERS = "[...document.querySelectorAll('.member')].map((each) => each.dataset.member).join('; ')"
_TODOS = "[...document.querySelectorAll('.todo')].map((each) => each.dataset.todo).join('; ')"
_PLACES = ("most", "second most", "third most", "fourth most", "fifth most", "sixth most", "seventh most")
_STATUSES = ("On vacation", "At lunch", "In a meeting", "Reviewing", "Back on Monday", "Please call", "Writing docs")


def projects(world: World, draw: Random, where: str = "1") -> list[Row]:
    """The projects of which a condition holds, in random order."""
    found = world.data("code").all(f"SELECT * FROM listed WHERE {where} ORDER BY slug")  # noqa: S608 - our own text
    draw.shuffle(found)
    return found


def absent_project(world: World, draw: Random) -> str:
    """The name of a project that does not exist."""
    held = {row["slug"] for row in world.data("code").all("SELECT slug FROM project")}
    while True:
        slug = slug_of(draw)
        if slug not in held:
            return slug


def strangers(world: World, draw: Random, project: str) -> list[str]:
    """People who are no members of a project, in random order."""
    members = {row["name"] for row in members_of(world.data("code"), project)}
    found = [row["name"] for row in world.data("code").all("SELECT name FROM person ORDER BY name")]
    draw.shuffle(found)
    return [name for name in found if name not in members]


def members_are(project: str, roles: dict[str, str]) -> dict[str, object]:
    """The rule that a project has these members in these roles."""
    text = "; ".join(f"{name}: {roles[name]}" for name in sorted(roles))
    return shows((f"__GITLAB__/p/{project}/members.html", _MEMBERS, text))


def project_is(project: str, about: str, visibility: str) -> dict[str, object]:
    """The rule that a project exists and is described like this."""
    return shows((f"__GITLAB__/p/{project}.html", _PROJECT, f"{about} | {visibility}"))


def _roles(world: World, project: str) -> dict[str, str]:
    return {row["name"]: row["role"] for row in members_of(world.data("code"), project)}


# ---- answers ---------------------------------------------------------------------------------------------------------
@CODE.intent(
    "code-commits",
    "How many commits did {{name}} make to the project {{project}} from {{first}} to {{last}}? Answer with the number.",
)
def commits(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, commits, three fields, filter, read."""
    query = "SELECT count(*) FROM commits WHERE project = ? AND author = ? AND day BETWEEN ? AND ?"
    authors = world.data("code").all("SELECT DISTINCT project, author FROM commits ORDER BY project, author")
    for _ in range(100):
        one = draw.choice(authors)
        begin = TODAY - timedelta(days=draw.randrange(40, 150))
        first, last = begin.isoformat(), (begin + timedelta(days=draw.choice((20, 40, 60)))).isoformat()
        number = world.data("code").value(query, *one, first, last)
        values = {"name": one["author"], "project": one["project"], "first": first, "last": last}
        yield Goal(values, answer(str(number)))


@CODE.intent("code-role", "Which role does {{name}} have in the project {{project}}? Answer with it. " + OR_NOT)
def role(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, members, read."""
    for _ in range(6):
        for each in projects(world, draw):
            if draw.random() < 0.2:
                yield Goal({"name": strangers(world, draw, each["slug"])[0], "project": each["slug"]}, not_possible())
            one = draw.choice(members_of(world.data("code"), each["slug"]))
            yield Goal({"name": one["name"], "project": each["slug"]}, answer(one["role"]))


@CODE.intent(
    "code-sign-in",
    "Sign in as {{name}} with the password {{password}} and answer how many open issues are assigned to that user.",
    signed_out=True,
)
def sign_in(world: World, draw: Random) -> Iterator[Goal]:
    """Sign in, menu, issues, read."""
    people = world.data("code").all("SELECT name FROM person ORDER BY name")
    draw.shuffle(people)
    for row in people:
        number = len(assigned_to(world.data("code"), row["name"]))
        yield Goal({"name": row["name"], "password": PASSWORD}, answer(str(number)))


# ---- navigation ------------------------------------------------------------------------------------------------------
@CODE.intent("code-mine", "Open the issue assigned to me that is due on {{day}}.")
def mine(world: World, draw: Random) -> Iterator[Goal]:
    """Menu, issues, further pages, open."""
    own = assigned_to(world.data("code"), USER)
    days = [each["due"] for each in own]
    for each in draw.sample(own, len(own)):
        if each["due"] and days.count(each["due"]) == 1:
            url = f"__GITLAB__/p/{each['project']}/issues/{each['number']}.html"
            yield Goal({"day": each["due"]}, stops_at(url))


# ---- stars, to-dos, the profile --------------------------------------------------------------------------------------
@CODE.intent(
    "code-star",
    "Give a star to the project with the {{place}} stars, and take back my star of the project {{project}}.",
)
def star(world: World, draw: Random) -> Iterator[Goal]:
    """Sort, further pages, open, star, search, open, unstar."""
    data = world.data("code")
    held, ranked = stars_of(data, USER), data.all("SELECT slug FROM listed ORDER BY starred DESC")
    for place, row in zip(_PLACES, ranked, strict=False):
        for project in held:
            if row["slug"] not in held:
                after = "; ".join(sorted({*held, row["slug"]} - {project}))
                rule = shows(("__GITLAB__/stars.html", texts_of(".star"), after))
                yield Goal({"place": place, "project": project}, rule)


@CODE.intent("code-todos", 'Mark my to-dos "{{one}}" and "{{other}}" as done.')
def todos(world: World, draw: Random) -> Iterator[Goal]:
    """To-dos, done, further pages, done."""
    own = todos_of(world.data("code"), USER)
    for _ in range(100):
        one, other = draw.sample(own, 2)
        left = [str(each["id"]) for each in own if each not in (one, other)]
        pages = enumerate((left[:PAGE], left[PAGE:]), start=1)
        looks = [(f"__GITLAB__/todos.html?p={number}", _TODOS, "; ".join(page)) for number, page in pages]
        yield Goal({"one": one["title"], "other": other["title"]}, shows(*looks))


@CODE.intent("code-profile", 'Set the status in my profile to "{{status}}" and the location to {{location}}.')
def profile(world: World, draw: Random) -> Iterator[Goal]:
    """Menu, profile, two fields, save."""
    for _ in range(80):
        status, location = draw.choice(_STATUSES), draw.choice([town for town in TOWNS if town != "Milford"])
        rule = shows(("__GITLAB__/profile.html", _PERSON, f"{status} | {location}"))
        yield Goal({"status": status, "location": location}, rule)


# ---- projects and members --------------------------------------------------------------------------------------------
@CODE.intent(
    "code-project",
    'Create the project {{project}} with the visibility {{visibility}} and the description "{{about}}", and invite'
    " {{name}} to it as {{role}}.",
)
def new_project(world: World, draw: Random) -> Iterator[Goal]:
    """New project, three fields, create, members, two fields, invite."""
    people = [
        row["name"] for row in world.data("code").all("SELECT name FROM person WHERE name <> ? ORDER BY name", USER)
    ]
    for _ in range(80):
        project = f"{draw.choice(words('red blue swift quiet tall'))}-{draw.choice(SECOND_WORDS)}"
        about, visibility = draw.choice(ABOUTS), draw.choice(VISIBILITIES)
        name, role = draw.choice(people), draw.choice(ROLES[:4])
        rule = also(project_is(project, about, visibility), members_are(project, {USER: "Owner", name: role}))
        values = {"project": project, "visibility": visibility.lower(), "about": about, "name": name}
        yield Goal({**values, "role": role.lower()}, rule)


@CODE.intent(
    "code-settings",
    'Change the description of my project {{project}} to "{{about}}" and its visibility to {{visibility}}.',
    held_out=True,
)
def settings(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, settings, two fields, save."""
    data = world.data("code")
    own = data.all(
        "SELECT project.* FROM project JOIN member ON project = slug WHERE name = ? AND role = 'Owner'", USER
    )
    for _ in range(100):
        one, about, visibility = draw.choice(own), draw.choice(ABOUTS), draw.choice(VISIBILITIES)
        if about != one["about"] and visibility != one["visibility"]:
            values = {"project": one["slug"], "about": about, "visibility": visibility.lower()}
            yield Goal(values, project_is(one["slug"], about, visibility))


@CODE.intent("code-invite", "Invite {{name}} to the project {{project}} as {{role}}, and remove {{other}} from it.")
def invite(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, members, two fields, invite, remove."""
    for _ in range(6):
        for each in projects(world, draw):
            roles = _roles(world, each["slug"])
            name, role = strangers(world, draw, each["slug"])[0], draw.choice(ROLES[:4])
            other = draw.choice([held for held in roles if held != USER])
            after = {**{key: value for key, value in roles.items() if key != other}, name: role}
            values = {"name": name, "project": each["slug"], "role": role.lower(), "other": other}
            yield Goal(values, members_are(each["slug"], after))


@CODE.intent("code-promote", "Make {{name}}, a member of the project {{project}}, a {{role}} of it. " + OR_NOT)
def promote(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, members, two fields, invite again."""
    for _ in range(6):
        for each in projects(world, draw):
            roles = _roles(world, each["slug"])
            name = draw.choice([held for held in roles if held != USER])
            role = draw.choice([other for other in ROLES[:4] if other != roles[name]])
            values = {"name": name, "project": each["slug"], "role": role.lower()}
            yield Goal(values, members_are(each["slug"], {**roles, name: role}))
            if draw.random() < 0.2:
                yield Goal({**values, "project": absent_project(world, draw)}, not_possible())
