"""Experts for the code host's issues and merge requests."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.code import in_pages, to_part
from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    answer,
    beside,
    fill,
    heading,
    link,
    note,
    noted,
    read,
    shown,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import Script, Turn, click, labelled


# ---- ways ------------------------------------------------------------------------------------------------------------
def _in_list(turn: Turn, project: str, part: str, title: str) -> str | Element:
    """The link of an issue or merge request in its list; until then the next step, or an answer if there is none."""
    step = to_part(turn, project, part)
    if step is not None:
        return step
    found = labelled(turn, title, "a")
    return found[0] if found else in_pages(turn, None) or answer(NOT_POSSIBLE)


def _to_issue(turn: Turn, project: str, title: str) -> str | None:
    """The way to an open issue; None on its page."""
    if heading(turn) == title:
        return None
    found = _in_list(turn, project, "Issues", title)
    return found if isinstance(found, str) else click(found)


def filtered(turn: Turn, project: str, state: str, label: str = "", assignee: str = "") -> str | None:
    """The way to a project's issues, with this filter; None there."""
    step = to_part(turn, project, "Issues")
    if step is not None:
        return step
    if f"issues ({', '.join(each for each in (state, label, assignee) if each)})." in turn.page.text:
        return None
    wanted = {"State": state, "Label": label, "Assignee": assignee}
    return fill(turn, {key: value for key, value in wanted.items() if value}, "Filter")


# ---- answers and navigation ------------------------------------------------------------------------------------------
def count(turn: Turn) -> str:
    """Filters the issues and reads how many there are."""
    label, name, project = turn.asked(r"the label (\w+) are assigned to (\w+) in the project (\S+)\?")
    return filtered(turn, project, "open", label, name) or answer(read(turn, r"(\d+) issues \("))


def due(turn: Turn) -> str:
    """Looks for the issue in the list and reads its line."""
    title, project = turn.asked(r'^When is the open issue "(.+)" of the project (\S+) due\?')
    found = _in_list(turn, project, "Issues", title)
    if isinstance(found, str):
        return found
    day = beside(found).partition("due ")[2].split()[0]
    return answer(NOT_POSSIBLE if day == "never" else day)


def newest(turn: Turn) -> str:
    """Filters the issues and opens the first."""
    state, label, project = turn.asked(r"^Open the newest (\w+) issue with the label (\w+) in the project (\S+)\. ")
    if shown(turn, "Add comment"):
        return DONE
    step = filtered(turn, project, state, label)
    if step is not None:
        return step
    rows = [each for each in turn.page.tagged("a") if beside(each).startswith("#")]
    return click(rows[0]) if rows else answer(NOT_POSSIBLE)


# ---- issues ----------------------------------------------------------------------------------------------------------
def new_issue(turn: Turn) -> str:
    """Fills the form for a new issue in."""
    project, title, name, label, day = turn.asked(
        r'in the project (\S+) with the title "(.+)": assigned to (\w+), label (\w+), due on ([\d-]+)\.$'
    )
    return open_issue(turn, project, {"Title": title, "Assignee": name, "Label": label, "Due": day})


def open_issue(turn: Turn, project: str, wanted: dict[str, str]) -> str:
    """The same, with this in it."""
    if heading(turn) == wanted["Title"]:
        return DONE
    if heading(turn) == f"New issue of {project}":
        return fill(turn, wanted, "Create issue")
    return to_part(turn, project, "Issues") or link(turn, "New issue")


def close(turn: Turn) -> str:
    """Opens the issue, comments, closes."""
    title, project, text = turn.asked(r'^Close the issue "(.+)" of the project (\S+) with the comment "(.+)"\.$')
    step = _to_issue(turn, project, title)
    if step is not None:
        return step
    if f": {text}" not in turn.page.text:
        return fill(turn, {"Comment": text}, "Add comment")
    return link(turn, "Close issue") if shown(turn, "Close issue") else DONE


def assign(turn: Turn) -> str:
    """Opens the issue, chooses, saves."""
    title, project, name, label = turn.asked(
        r'^Assign the open issue "(.+)" of the project (\S+) to (\w+) and label it (\w+)\.'
    )
    step = _to_issue(turn, project, title)
    if step is not None:
        return step
    if "The issue is saved." in turn.page.chunks:
        return DONE
    return fill(turn, {"Assignee": name, "Label": label}, "Save")


# ---- merge requests --------------------------------------------------------------------------------------------------
def merge(turn: Turn) -> str:
    """Opens the merge request and merges it, if there is a button for that."""
    title, project = turn.asked(r'^Merge the merge request "(.+)" of the project (\S+)\. If')
    if heading(turn) == title:
        if "The merge request is merged." in turn.page.chunks:
            return DONE
        return link(turn, "Merge") if shown(turn, "Merge") else answer(NOT_POSSIBLE)
    found = _in_list(turn, project, "Merge requests", title)
    return found if isinstance(found, str) else click(found)


def close_merge(turn: Turn) -> str:
    """Opens one open merge request after another, until it is of the branch, and closes it."""
    project, branch = turn.asked(r"of the project (\S+) that would merge the branch (\S+)\.$")
    if "The merge request is closed." in turn.page.chunks:
        return DONE
    if shown(turn, "Close merge request"):
        if f"From {branch} into " in turn.page.text:
            return link(turn, "Close merge request")
        return note(f"seen{read(turn, r'!([0-9]+) of')}", "no", "go_backward()")
    step = to_part(turn, project, "Merge requests")
    if step is not None:
        return step
    for each in turn.page.tagged("a"):
        number, _, state = beside(each).removeprefix("!").partition(" ")
        if number.isdecimal() and state.startswith("open") and not noted(turn, f"seen{number}"):
            return click(each)
    return in_pages(turn, None) or answer(NOT_POSSIBLE)


def new_merge(turn: Turn) -> str:
    """Fills the form for a new merge request in."""
    project, source, target, title, name = turn.asked(
        r'in the project (\S+) to merge the branch (\S+) into (\S+), with the title "(.+)" and (\w+) as the reviewer\.$'
    )
    if heading(turn) == title:
        return DONE
    if heading(turn) == f"New merge request of {project}":
        wanted = {"Source": source, "Target": target, "Title": title, "Reviewer": name}
        return fill(turn, wanted, "Create merge request")
    return to_part(turn, project, "Merge requests") or link(turn, "New merge request")


SCRIPTS: Mapping[str, Script] = {
    "code-assign": assign,
    "code-close": close,
    "code-count": count,
    "code-due": due,
    "code-issue": new_issue,
    "code-merge": merge,
    "code-merge-close": close_merge,
    "code-merge-new": new_merge,
    "code-newest": newest,
}
