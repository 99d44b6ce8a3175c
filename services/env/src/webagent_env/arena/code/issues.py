"""The code host's pages of issues and merge requests."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.code.data import LABELS
from webagent_env.arena.code.site import PAGE, SITE, chosen, date_given, members_of, project_of, role_of
from webagent_env.arena.site import Problem, Visit, paged
from webagent_env.arena.world import TODAY, Data

STATES = ("open", "closed", "all")


# ---- issues ----------------------------------------------------------------------------------------------------------
@SITE.page("/p/{slug}/issues.html")
def issues(visit: Visit) -> web.Response:
    """A project's issues, the newest first, or what a filter leaves of them."""
    one = project_of(visit)
    state, label, assignee = visit.asked("state", "open"), visit.asked("label"), visit.asked("assignee")
    found = found_issues(visit.data, one["slug"], state, label, assignee)
    filtered = {"state": state, "label": label, "assignee": assignee}
    names = [each["name"] for each in members_of(visit.data, one["slug"])]
    shown = {"states": STATES, "labels": LABELS, "names": names}
    return visit.show("issues", project=one, **filtered, **shown, **paged(visit, found, PAGE))


def found_issues(data: Data, slug: str, state: str = "all", label: str = "", assignee: str = "") -> list[Row]:
    """A project's issues of which all this holds, the newest first."""
    return data.all(
        "SELECT * FROM issue WHERE project = ? AND (? = 'all' OR state = ?) AND (? = '' OR label = ?)"
        " AND (? = '' OR assignee = ?) ORDER BY number DESC",
        *(slug, state, state, label, label, assignee, assignee),
    )


@SITE.page("/p/{slug}/issues/new.html", private=True)
def new_issue(visit: Visit) -> web.Response:
    """The form for a new issue."""
    one = project_of(visit)
    names = [each["name"] for each in members_of(visit.data, one["slug"])]
    return visit.show("new_issue", project=one, names=names, labels=LABELS)


@SITE.action("/p/{slug}/issues/new.html", private=True)
def create_issue(visit: Visit) -> web.Response:
    """Opens an issue."""
    slug, title = project_of(visit)["slug"], visit.given("title", "Title")
    number = next_number(visit.data, "issue", slug)
    visit.data.do(
        "INSERT INTO issue VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)",
        *(
            slug,
            number,
            title,
            visit.form.get("text", "").strip(),
            visit.user,
            *_fields(visit, slug),
            TODAY.isoformat(),
        ),
    )
    return visit.go(f"/p/{slug}/issues/{number}.html", "The issue is created.")


@SITE.page(r"/p/{slug}/issues/{number:\d+}.html")
def issue(visit: Visit) -> web.Response:
    """One issue."""
    one, remarks = _issue(visit), _remarks(visit)
    names = [each["name"] for each in members_of(visit.data, one["project"])]
    return visit.show("issue", issue=one, remarks=remarks, names=names, labels=LABELS, summary=issue_summary(one))


@SITE.action(r"/p/{slug}/issues/{number:\d+}.html", private=True)
def save_issue(visit: Visit) -> web.Response:
    """Changes who is to do it, its label and when it is due."""
    one = _issue(visit)
    visit.data.do(
        "UPDATE issue SET assignee = ?, label = ?, due = ? WHERE project = ? AND number = ?",
        *(*_fields(visit, one["project"]), one["project"], one["number"]),
    )
    return visit.go(_address(one), "The issue is saved.")


@SITE.action(r"/p/{slug}/issues/{number:\d+}.html/comment", private=True)
def remark(visit: Visit) -> web.Response:
    """Adds a comment."""
    one = _issue(visit)
    visit.data.do(
        "INSERT INTO remark (project, number, author, text) VALUES (?, ?, ?, ?)",
        *(one["project"], one["number"], visit.user, visit.given("text", "Comment")),
    )
    return visit.go(_address(one), "Your comment is added.")


@SITE.action(r"/p/{slug}/issues/{number:\d+}.html/{what:close|reopen}", private=True)
def close_issue(visit: Visit) -> web.Response:
    """Closes or opens it."""
    one, state = _issue(visit), "closed" if visit.part("what") == "close" else "open"
    visit.data.do("UPDATE issue SET state = ? WHERE project = ? AND number = ?", state, one["project"], one["number"])
    return visit.go(_address(one), f"The issue is {state}.")


def issue_summary(one: Row) -> str:
    """An issue as rules read it."""
    return summary(one["title"], one["state"], one["assignee"], one["label"], one["due"])


def summary(title: str, state: str, assignee: str, label: str, due: str) -> str:
    """The same, of its parts."""
    return f"{title} | {state} | {assignee or 'nobody'} | {label or 'no label'} | {due or 'never'}"


def next_number(data: Data, table: str, slug: str) -> int:
    """The number of a project's next issue or merge request."""
    return int(data.value(f"SELECT coalesce(max(number), 0) + 1 FROM {table} WHERE project = ?", slug))  # noqa: S608


def _fields(visit: Visit, slug: str) -> tuple[str, str, str]:
    """Who is to do an issue, its label and when it is due; each may be empty."""
    assignee, label = visit.form.get("assignee", ""), visit.form.get("label", "")
    if assignee and not role_of(visit.data, slug, assignee):
        raise Problem("Assignee must be a member.")
    if label and label not in LABELS:
        raise Problem("There is no such label.")
    return assignee, label, date_given(visit.form.get("due", "").strip(), "Due")


def _issue(visit: Visit) -> Row:
    found = visit.data.one(
        "SELECT * FROM issue WHERE project = ? AND number = ?", visit.part("slug"), visit.part("number")
    )
    if found is None:
        raise web.HTTPNotFound(text="There is no such issue.")
    return found


def _remarks(visit: Visit) -> list[Row]:
    query = "SELECT * FROM remark WHERE project = ? AND number = ? ORDER BY id"
    return visit.data.all(query, visit.part("slug"), visit.part("number"))


def _address(one: Row) -> str:
    return f"/p/{one['project']}/issues/{one['number']}.html"


# ---- merge requests --------------------------------------------------------------------------------------------------
@SITE.page("/p/{slug}/merges.html")
def merges(visit: Visit) -> web.Response:
    """A project's merge requests, the newest first."""
    one = project_of(visit)
    found = visit.data.all("SELECT * FROM merge WHERE project = ? ORDER BY number DESC", one["slug"])
    return visit.show("merges", project=one, **paged(visit, found, PAGE))


@SITE.page("/p/{slug}/merges/new.html", private=True)
def new_merge(visit: Visit) -> web.Response:
    """The form for a new merge request."""
    one = project_of(visit)
    names = [each["name"] for each in members_of(visit.data, one["slug"])]
    return visit.show("new_merge", project=one, names=names, branches=branches_of(visit.data, one["slug"]))


@SITE.action("/p/{slug}/merges/new.html", private=True)
def create_merge(visit: Visit) -> web.Response:
    """Asks to merge a branch."""
    slug, title = project_of(visit)["slug"], visit.given("title", "Title")
    branches = branches_of(visit.data, slug)
    source, target = chosen(visit, "source", "Source", branches), chosen(visit, "target", "Target", branches)
    if source == target:
        raise Problem("Source and target must differ.")
    reviewer, number = visit.form.get("reviewer", ""), next_number(visit.data, "merge", slug)
    if reviewer and not role_of(visit.data, slug, reviewer):
        raise Problem("Reviewer must be a member.")
    visit.data.do(
        "INSERT INTO merge (project, number, title, author, source, target, reviewer) VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(slug, number, title, visit.user, source, target, reviewer),
    )
    return visit.go(f"/p/{slug}/merges/{number}.html", "The merge request is created.")


@SITE.page(r"/p/{slug}/merges/{number:\d+}.html")
def merge(visit: Visit) -> web.Response:
    """One merge request."""
    one = _merge(visit)
    return visit.show("merge", merge=one, summary=merge_summary(one))


@SITE.action(r"/p/{slug}/merges/{number:\d+}.html/{what:merge|close}", private=True)
def end_merge(visit: Visit) -> web.Response:
    """Merges it, or closes it without."""
    one, state = _merge(visit), "merged" if visit.part("what") == "merge" else "closed"
    if one["state"] != "open" or (state == "merged" and one["conflicts"]):
        raise Problem(f"This merge request cannot be {state}.")
    visit.data.do("UPDATE merge SET state = ? WHERE project = ? AND number = ?", state, one["project"], one["number"])
    return visit.go(f"/p/{one['project']}/merges/{one['number']}.html", f"The merge request is {state}.")


def merge_summary(one: Row) -> str:
    """A merge request as rules read it."""
    return f"{one['title']} | {one['source']} | {one['target']} | {one['reviewer'] or 'nobody'} | {one['state']}"


def branches_of(data: Data, slug: str) -> tuple[str, ...]:
    """A project's branches."""
    return tuple(row["name"] for row in data.all("SELECT name FROM branch WHERE project = ? ORDER BY name", slug))


def _merge(visit: Visit) -> Row:
    found = visit.data.one(
        "SELECT * FROM merge WHERE project = ? AND number = ?", visit.part("slug"), visit.part("number")
    )
    if found is None:
        raise web.HTTPNotFound(text="There is no such merge request.")
    return found
