"""Experts for the code host: projects, members, commits, one's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    RANKS,
    answer,
    beside,
    fill,
    found_by_search,
    heading,
    link,
    link_like,
    note,
    noted,
    page_of,
    read,
    shown,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import ExpertLost, Script, Turn, click, first, labelled

SEARCH = "Search projects"
_PAGE = 6


# ---- ways ------------------------------------------------------------------------------------------------------------
def to_project(turn: Turn, project: str) -> str | None:
    """The way to a project; an answer if there is none; None on its page."""
    return found_by_search(turn, SEARCH, project, f'Projects like "{project}"', project)


def to_part(turn: Turn, project: str, part: str) -> str | None:
    """The way to a project's issues, merge requests, members, commits or settings; None there."""
    if heading(turn) == f"{part} of {project}":
        return None
    return to_project(turn, project) or link(turn, part)


def to_own(turn: Turn, page: str) -> str | None:
    """The way to a page in the menu of one's own; None there."""
    if heading(turn) == page:
        return None
    return link(turn, page) if shown(turn, page) else click(first(turn.page.tagged("details"), "menu"))


def in_pages(turn: Turn, found: Element | None) -> str | None:
    """Clicks what was found, else goes to the list's next page; None after the last one."""
    if found is not None:
        return click(found)
    number, last = page_of(turn)
    return link(turn, "Next") if number < last else None


# ---- answers and navigation ------------------------------------------------------------------------------------------
def commits(turn: Turn) -> str:
    """Filters the commits and reads how many there are."""
    name, project, first_day, last_day = turn.asked(r"did (\w+) make to the project (\S+) from (\S+) to (\S+)\?")
    step = to_part(turn, project, "Commits")
    if step is not None:
        return step
    if f"commits by {name} from {first_day} to {last_day}." not in turn.page.text:
        return fill(turn, {"Author": name, "From": first_day, "To": last_day}, "Filter")
    return answer(read(turn, r"(\d+) commits by"))


def role(turn: Turn) -> str:
    """Opens the members and reads the role."""
    name, project = turn.asked(r"does (\w+) have in the project (\S+)\?")
    step = to_part(turn, project, "Members")
    return step or answer(_roles(turn).get(name, NOT_POSSIBLE))


def sign_in(turn: Turn) -> str:
    """Signs in and reads how many issues there are."""
    name, password = turn.asked(r"^Sign in as (\w+) with the password (\S+) and")
    if heading(turn) == "Sign in":
        return fill(turn, {"User": name, "Password": password}, "Log in")
    if shown(turn, "Sign in"):
        return link(turn, "Sign in")
    return to_own(turn, "My issues") or answer(read(turn, r"(\d+) open issues are assigned"))


def mine(turn: Turn) -> str:
    """Opens one's own issues and the one that is due then."""
    (day,) = turn.asked(r"due on ([\d-]+)\.$")
    if "#" in turn.page.text and "Close issue" in turn.page.text:
        return DONE
    step = to_own(turn, "My issues")
    if step is not None:
        return step
    found = next((each for each in turn.page.tagged("a") if f"due {day}" in beside(each)), None)
    return in_pages(turn, found) or answer(NOT_POSSIBLE)


# ---- stars, to-dos, the profile --------------------------------------------------------------------------------------
def star(turn: Turn) -> str:
    """Sorts the projects, opens the one at that place and stars it; then finds the other."""
    place, project = turn.asked(r"with the (.+) stars, and take back my star of the project (\S+)\.$")
    if noted(turn, "star"):
        step = to_project(turn, project)
        return step or (link(turn, "Unstar") if shown(turn, "Unstar") else DONE)
    if heading(turn) != "Projects":
        if shown(turn, "Star"):
            return link(turn, "Star")
        return note("star", heading(turn), link(turn, "Projects"))
    if "sorted by most stars." not in turn.page.text:
        return fill(turn, {"Sort by": "Most stars"}, "Show")
    rows = [each for each in turn.page.tagged("a") if " stars, " in beside(each)]
    there = RANKS.index(place) - _PAGE * (page_of(turn)[0] - 1)
    return click(rows[there]) if there < len(rows) else link(turn, "Next")


def todos(turn: Turn) -> str:
    """Goes through the to-dos and is done with both."""
    wanted = turn.asked(r'my to-dos "(.+)" and "(.+)" as done\.$')
    if heading(turn) != "To-dos":
        return link_like(turn, "To-dos (")
    numbered = turn.page.numbered
    for title in wanted:
        found = labelled(turn, title, "a")
        if found:
            return click(numbered[numbered.index(found[0]) + 1])
    number, last = page_of(turn)
    return link(turn, "Next") if number < last else DONE


def profile(turn: Turn) -> str:
    """Opens the profile and fills it in."""
    status, location = turn.asked(r'my profile to "(.+)" and the location to (\w+)\.$')
    step = to_own(turn, "Profile")
    if step is not None:
        return step
    if "Your profile is saved." in turn.page.chunks:
        return DONE
    return fill(turn, {"Status": status, "Location": location}, "Save profile")


# ---- projects and members --------------------------------------------------------------------------------------------
def new_project(turn: Turn) -> str:
    """Fills the form for a project in, then invites."""
    project, visibility, about, name, its_role = turn.asked(
        r'^Create the project (\S+) with the visibility (\w+) and .* "(.+)", and invite (\w+) to it as (\w+)\.$'
    )
    at = heading(turn)
    if at == project:
        return link(turn, "Members")
    if at == f"Members of {project}":
        return _invite(turn, name, its_role)
    if at != "New project":
        return link(turn, "New project")
    wanted = {"Name": project, "Description": about, "Visibility": visibility.capitalize()}
    return fill(turn, wanted, "Create project")


def settings(turn: Turn) -> str:
    """Opens the project's settings and fills them in."""
    project, about, visibility = turn.asked(r'my project (\S+) to "(.+)" and its visibility to (\w+)\.$')
    if "The settings are saved." in turn.page.chunks:
        return DONE
    wanted = {"Description": about, "Visibility": visibility.capitalize()}
    return to_part(turn, project, "Settings") or fill(turn, wanted, "Save settings")


def invite(turn: Turn) -> str:
    """Opens the members, invites the one and removes the other."""
    name, project, its_role, other = turn.asked(
        r"^Invite (\w+) to the project (\S+) as (\w+), and remove (\w+) from it"
    )
    step = to_part(turn, project, "Members")
    if step is not None:
        return step
    step = _invite(turn, name, its_role)
    if step != DONE or other not in _roles(turn):
        return step
    for button in labelled(turn, "Remove", "button"):
        if other in button.lead:
            return click(button)
    raise ExpertLost(f"{other} cannot be removed")


def promote(turn: Turn) -> str:
    """Opens the members and gives the role."""
    name, project, its_role = turn.asked(r"^Make (\w+), a member of the project (\S+), a (\w+) of it\.")
    return to_part(turn, project, "Members") or _invite(turn, name, its_role)


def _roles(turn: Turn) -> dict[str, str]:
    """The members that the page shows, with their roles."""
    roles = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")
    chunks = turn.page.chunks
    # In the dropdown above, what stands before a role is another role, or its label.
    named = [(before, chunk) for before, chunk in pairwise(chunks) if chunk in roles]
    return {before: chunk for before, chunk in named if before not in (*roles, "Role")}


def _invite(turn: Turn, name: str, its_role: str) -> str:
    if _roles(turn).get(name) == its_role.capitalize():
        return DONE
    return fill(turn, {"User": name, "Role": its_role.capitalize()}, "Invite")


SCRIPTS: Mapping[str, Script] = {
    "code-commits": commits,
    "code-invite": invite,
    "code-mine": mine,
    "code-profile": profile,
    "code-project": new_project,
    "code-promote": promote,
    "code-role": role,
    "code-settings": settings,
    "code-sign-in": sign_in,
    "code-star": star,
    "code-todos": todos,
}
