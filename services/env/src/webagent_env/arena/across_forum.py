"""Intent templates that span the forum and another site; each begins in a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from webagent_env.arena.code.data import USER
from webagent_env.arena.code.issue_tasks import issue_is
from webagent_env.arena.code.issues import found_issues, next_number, summary
from webagent_env.arena.code.tasks import projects
from webagent_env.arena.forum.site import boards
from webagent_env.arena.forum.tasks import threads
from webagent_env.arena.forum.writing_tasks import commented, posted
from webagent_env.arena.intents import Chapter, Goal
from webagent_env.arena.shop.tasks import products
from webagent_env.arena.site import money
from webagent_env.arena.world import World

SHOP_AND_FORUM = Chapter("shopping", "reddit", start=("__SHOPPING__/", "__REDDIT__/"))
CODE_AND_FORUM = Chapter("gitlab", "reddit", start=("__GITLAB__/", "__REDDIT__/"))
FORUM_AND_CODE = Chapter("reddit", "gitlab", start=("__REDDIT__/", "__GITLAB__/"))
_TEXTS = ("Has anybody solved this?", "What would you do?", "Please vote on it.", "I need this soon.")


@SHOP_AND_FORUM.intent(
    "across-price-comment",
    "Find out what the {{product}} costs in the shop, and write that price, such as $12.50, as a comment in the forum's"
    ' thread "{{title}}".',
)
def price_comment(world: World, draw: Random) -> Iterator[Goal]:
    """Search the shop, then comment in the forum."""
    found = threads(world, draw)
    for each, thread in zip(products(world, draw), found, strict=False):
        rule = commented(world, thread["title"], money(each["price"]))
        yield Goal({"product": each["name"], "title": thread["title"]}, rule)


@CODE_AND_FORUM.intent(
    "across-issue-thread",
    "Start a thread in the forum's board {{board}} whose title is that of the newest open issue of the project"
    ' {{project}} on the code host, with the text "{{text}}".',
)
def issue_thread(world: World, draw: Random) -> Iterator[Goal]:
    """Search the project, read its issues, then post in the forum."""
    names = [each["name"] for each in boards(world.data("forum"))]
    for _ in range(5):
        for each in projects(world, draw):
            board, text = draw.choice(names), draw.choice(_TEXTS)
            found = found_issues(world.data("code"), each["slug"], "open")
            if found:
                values = {"board": board, "project": each["slug"], "text": text}
                yield Goal(values, posted(world, board, found[0]["title"], text))


@FORUM_AND_CODE.intent(
    "across-thread-issue",
    "Open an issue in the project {{project}} on the code host whose title is that of the thread with the {{place}}"
    " points in the forum's board {{board}}, assigned to me ({{me}}).",
    held_out=True,
)
def thread_issue(world: World, draw: Random) -> Iterator[Goal]:
    """Sort the board, read, then find the project and fill in the form for an issue."""
    for _ in range(8):
        for each in projects(world, draw):
            board, place = draw.choice(boards(world.data("forum"))), draw.randrange(3)
            query = "SELECT title FROM listed WHERE board = ? ORDER BY points DESC"
            title = world.data("forum").all(query, board["slug"])[place]["title"]
            number = next_number(world.data("code"), "issue", each["slug"])
            values = {
                "project": each["slug"],
                "place": ("most", "second most", "third most")[place],
                "board": board["name"],
                "me": USER,
            }
            yield Goal(values, issue_is(each["slug"], number, summary(title, "open", USER, "", "")))
