"""Intent templates of the code host: issues and merge requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from sqlite3 import Row

from webagent_env.arena.code.data import LABELS, USER, issue_title, merge_title
from webagent_env.arena.code.issues import branches_of, found_issues, next_number, summary
from webagent_env.arena.code.site import members_of
from webagent_env.arena.code.tasks import projects
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, answer, not_possible, shows, stops_at, texts_of
from webagent_env.arena.world import TODAY, World

ISSUES = Chapter("gitlab", start=("__GITLAB__/",))
_ISSUE = "document.querySelector('#issue').dataset.summary"
_MERGE = "document.querySelector('#merge').dataset.summary"
_REMARKS = (
    "Fixed on main.",
    "Cannot be reproduced.",
    "Works as intended.",
    "A duplicate.",
    "No longer needed.",
    "Moved to the next release.",
)


def issue_is(project: str, number: int, text: str) -> dict[str, object]:
    """The rule that an issue is like this."""
    return shows((f"__GITLAB__/p/{project}/issues/{number}.html", _ISSUE, text))


def issues(world: World, draw: Random, where: str = "1") -> list[Row]:
    """The issues of which a condition holds, in random order."""
    query = f"SELECT * FROM issue WHERE {where} ORDER BY project, number"  # noqa: S608 - our own text
    found = world.data("code").all(query)
    draw.shuffle(found)
    return found


def names_of(world: World, project: str) -> list[str]:
    """A project's members."""
    return [row["name"] for row in members_of(world.data("code"), project)]


# ---- answers and navigation ------------------------------------------------------------------------------------------
@ISSUES.intent(
    "code-count",
    "How many open issues with the label {{label}} are assigned to {{name}} in the project {{project}}?"
    " Answer with the number.",
)
def count(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, two dropdowns, filter, read."""
    for each in issues(world, draw, "assignee <> ''"):
        found = found_issues(world.data("code"), each["project"], "open", each["label"], each["assignee"])
        values = {"label": each["label"], "name": each["assignee"], "project": each["project"]}
        yield Goal(values, answer(str(len(found))))


@ISSUES.intent(
    "code-due",
    'When is the open issue "{{title}}" of the project {{project}} due? Answer with the date, such as 2024-05-31. If it'
    ' has no such date, answer "N/A".',
    held_out=True,
)
def due(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, further pages, read."""
    for each in issues(world, draw, "state = 'open'"):
        rule = answer(each["due"]) if each["due"] else not_possible()
        yield Goal({"title": each["title"], "project": each["project"]}, rule)


@ISSUES.intent(
    "code-newest", "Open the newest {{state}} issue with the label {{label}} in the project {{project}}. " + OR_NOT
)
def newest(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, two dropdowns, filter, open."""
    for _ in range(3):
        for each in projects(world, draw):
            state, label = draw.choice(("open", "closed")), draw.choice(LABELS)
            found = found_issues(world.data("code"), each["slug"], state, label)
            url = f"__GITLAB__/p/{each['slug']}/issues/{found[0]['number']}.html" if found else ""
            values = {"state": state, "label": label, "project": each["slug"]}
            yield Goal(values, stops_at(url) if url else not_possible())


# ---- issues ----------------------------------------------------------------------------------------------------------
@ISSUES.intent(
    "code-issue",
    'Open an issue in the project {{project}} with the title "{{title}}": assigned to {{name}}, label {{label}}, due on'
    " {{day}}.",
)
def new_issue(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, new issue, four fields, create."""
    for _ in range(4):
        for each in projects(world, draw):
            name, label = draw.choice(names_of(world, each["slug"])), draw.choice(LABELS)
            title, day = f"{issue_title(draw)} again", (TODAY + timedelta(days=draw.randrange(2, 90))).isoformat()
            number = next_number(world.data("code"), "issue", each["slug"])
            values = {"project": each["slug"], "title": title, "name": name, "label": label, "day": day}
            yield Goal(values, issue_is(each["slug"], number, summary(title, "open", name, label, day)))


@ISSUES.intent("code-close", 'Close the issue "{{title}}" of the project {{project}} with the comment "{{text}}".')
def close(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, further pages, open, type, comment, close."""
    for each in issues(world, draw, "state = 'open'"):
        text = draw.choice(_REMARKS)
        after = summary(each["title"], "closed", each["assignee"], each["label"], each["due"])
        url = f"__GITLAB__/p/{each['project']}/issues/{each['number']}.html"
        rule = shows((url, _ISSUE, after), (url, texts_of(".remark"), f"{USER}: {text}"))
        yield Goal({"title": each["title"], "project": each["project"], "text": text}, rule)


@ISSUES.intent(
    "code-assign",
    'Assign the open issue "{{title}}" of the project {{project}} to {{name}} and label it {{label}}. ' + OR_NOT,
)
def assign(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, issues, further pages, open, two dropdowns, save."""
    for each in issues(world, draw, "state = 'open'"):
        label = draw.choice([label for label in LABELS if label != each["label"]])
        name = draw.choice([name for name in names_of(world, each["project"]) if name != each["assignee"]])
        values = {"title": each["title"], "project": each["project"], "name": name, "label": label}
        after = summary(each["title"], "open", name, label, each["due"])
        yield Goal(values, issue_is(each["project"], each["number"], after))
        absent = issue_title(draw)
        held = {row["title"] for row in found_issues(world.data("code"), each["project"])}
        if absent not in held and draw.random() < 0.2:
            yield Goal({**values, "title": absent}, not_possible())


# ---- merge requests --------------------------------------------------------------------------------------------------
@ISSUES.intent(
    "code-merge",
    'Merge the merge request "{{title}}" of the project {{project}}. If it cannot be merged, answer "N/A".',
    held_out=True,
)
def merge(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, merge requests, open, merge."""
    found = world.data("code").all("SELECT * FROM merge WHERE state = 'open' ORDER BY project, number")
    for each in draw.sample(found, len(found)):
        rule = merge_is(
            each["project"], each["number"], each["title"], each["source"], "main", each["reviewer"], "merged"
        )
        yield Goal({"title": each["title"], "project": each["project"]}, not_possible() if each["conflicts"] else rule)


@ISSUES.intent(
    "code-merge-close", "Close the merge request of the project {{project}} that would merge the branch {{branch}}."
)
def close_merge(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, merge requests, open one after another, close."""
    found = world.data("code").all("SELECT * FROM merge WHERE state = 'open' ORDER BY project, number")
    for each in draw.sample(found, len(found)):
        rule = merge_is(
            each["project"], each["number"], each["title"], each["source"], "main", each["reviewer"], "closed"
        )
        yield Goal({"project": each["project"], "branch": each["source"]}, rule)


@ISSUES.intent(
    "code-merge-new",
    'Ask in the project {{project}} to merge the branch {{source}} into {{target}}, with the title "{{title}}" and'
    " {{name}} as the reviewer.",
)
def new_merge(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, merge requests, new, four fields, create."""
    data = world.data("code")
    for _ in range(5):
        for each in projects(world, draw):
            branches = [name for name in branches_of(data, each["slug"]) if name not in {"main", "stable"}]
            source, target = draw.choice(branches), draw.choice(("main", "stable"))
            title, name = f"{merge_title(draw)} once more", draw.choice(names_of(world, each["slug"]))
            number = next_number(data, "merge", each["slug"])
            values = {"project": each["slug"], "source": source, "target": target, "title": title, "name": name}
            yield Goal(values, merge_is(each["slug"], number, title, source, target, name, "open"))


def merge_is(project: str, number: int, *parts: str) -> dict[str, object]:
    """The rule that a merge request is like this: title, source, target, reviewer, state."""
    return shows((f"__GITLAB__/p/{project}/merges/{number}.html", _MERGE, " | ".join(parts)))
