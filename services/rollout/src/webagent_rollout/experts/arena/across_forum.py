"""Experts for what spans the forum and another site."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.code import to_part
from webagent_rollout.experts.arena.code_issues import open_issue
from webagent_rollout.experts.arena.forum import start_thread, to_board, to_thread, write_comment
from webagent_rollout.experts.arena.shop import SEARCH, results
from webagent_rollout.experts.arena.steps import beside, heading, note, noted, search, switch
from webagent_rollout.experts.script import Script, Turn, first, labelled, nth


def price_comment(turn: Turn) -> str:
    """Searches the shop for the product, notes its price, and writes it in the forum."""
    product, title = turn.asked(r'^Find out what the (.+) costs in the shop, .* thread "(.+)"\.$')
    price = noted(turn, "price")
    if price is not None:
        return to_thread(turn, title) or write_comment(turn, price)
    if heading(turn) != results(product):
        return search(turn, SEARCH, product)
    return note("price", beside(first(labelled(turn, product, "a"), product)).split()[0], switch(1))


def issue_thread(turn: Turn) -> str:
    """Opens the project's issues, notes the first, and starts a thread in the forum."""
    board, project, text = turn.asked(r'forum\'s board (\w+) .* of the project (\S+) on .* with the text "(.+)"\.$')
    title = noted(turn, "title")
    if title is not None:
        return start_thread(turn, board, title, text)
    rows = [each for each in turn.page.tagged("a") if beside(each).startswith("#")]
    return to_part(turn, project, "Issues") or note("title", first(rows, "issue").text, switch(1))


def thread_issue(turn: Turn) -> str:
    """Sorts the board, notes the thread at that place, and opens an issue on the code host."""
    project, place, board, me = turn.asked(
        r"in the project (\S+) on .* with the (.+) points in the forum's board (\w+), assigned to me \((\w+)\)\.$"
    )
    title = noted(turn, "title")
    if title is not None:
        return open_issue(turn, project, {"Title": title, "Assignee": me})
    step = to_board(turn, board, "Top")
    if step is not None:
        return step
    rows = [each for each in turn.page.tagged("a") if " points, " in beside(each)]
    row = nth(rows, ("most", "second most", "third most").index(place), "thread")
    return note("title", row.text, switch(1))


SCRIPTS: Mapping[str, Script] = {
    "across-issue-thread": issue_thread,
    "across-price-comment": price_comment,
    "across-thread-issue": thread_issue,
}
