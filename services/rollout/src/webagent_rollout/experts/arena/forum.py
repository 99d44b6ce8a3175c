"""Experts for the forum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    RANKS,
    answer,
    fill,
    found_by_search,
    heading,
    link,
    note,
    noted,
    page_of,
    read,
    shown,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import Script, Turn, click, first, labelled, nth

SEARCH = "Search the forum"
# Links above every page.
MENU = 3
_PAGE = 6
_ROW = re.compile(r"(\d+) points, (\d+) comments, by (\w+), ")


@dataclass(frozen=True, slots=True)
class Listed:
    """A thread in a list."""

    link: Element
    points: int
    comments: int
    author: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment below a thread."""

    author: Element
    points: str
    up: Element
    down: Element


# ---- reading pages ---------------------------------------------------------------------------------------------------
def _listed(turn: Turn) -> list[Listed]:
    found = [(each, _ROW.match(each.trail[0])) for each in turn.page.tagged("a") if each.trail]
    return [Listed(each, int(row[1]), int(row[2]), row[3]) for each, row in found if row]


def _comments(turn: Turn) -> list[Comment]:
    numbered = turn.page.numbered
    places = [i for i, each in enumerate(numbered) if each.text == "Up" and each.tag == "button"]
    return [Comment(numbered[i - 1], numbered[i - 1].trail[1], *numbered[i : i + 2]) for i in places]


def sum_of_pages(turn: Turn, here: int) -> str:
    """Adds what each page of a list has, and answers with the sum."""
    number, last = page_of(turn)
    if number < last:
        return note(f"page{number}", str(here), link(turn, "Next"))
    return answer(str(here + sum(int(noted(turn, f"page{each}") or 0) for each in range(1, last))))


# ---- ways ------------------------------------------------------------------------------------------------------------
def to_thread(turn: Turn, title: str) -> str | None:
    """The way to a thread; an answer if there is none; None on its page."""
    return found_by_search(turn, SEARCH, title, f'Results for "{title}"', title)


def to_board(turn: Turn, board: str, sort: str = "") -> str | None:
    """The way to a board, sorted in this way; None there."""
    if heading(turn) != board:
        return link(turn, board if shown(turn, board) else "Boards")
    if not sort or f"sorted by {sort.lower()}." in turn.page.text:
        return None
    return fill(turn, {"Sort by": sort}, "Show")


def to_nth(turn: Turn, board: str, sort: str, index: int) -> str | None:
    """The way to the thread at an index of a sorted board; None on a thread's page."""
    if shown(turn, "Upvote"):
        return None
    step = to_board(turn, board, sort)
    if step is not None:
        return step
    there = index - _PAGE * (page_of(turn)[0] - 1)
    rows = _listed(turn)
    return click(rows[there].link) if there < len(rows) else link(turn, "Next")


def _to_author(turn: Turn, title: str) -> str | None:
    """The way to the profile of a thread's author; None on a profile."""
    if "Member since" in turn.page.text:
        return None
    return to_thread(turn, title) or click(nth(turn.page.tagged("a"), MENU + 1, "author"))


def _to_own(turn: Turn, page: str) -> str:
    """A link of one's own profile."""
    return link(turn, page) if shown(turn, "Settings") else link(turn, "Profile")


# ---- answers and navigation ------------------------------------------------------------------------------------------
def author(turn: Turn) -> str:
    """Searches for the thread and reads its line."""
    (title,) = turn.asked(r'started the thread "(.+)" on the forum\?')
    if heading(turn) != f'Results for "{title}"':
        return to_thread(turn, title) or DONE
    found = [each.author for each in _listed(turn) if each.link.text == title]
    return answer(found[0] if found else NOT_POSSIBLE)


def said(turn: Turn) -> str:
    """Opens the thread and counts the comments, page by page."""
    name, title = turn.asked(r'did (\w+) write in the thread "(.+)"\?')
    return to_thread(turn, title) or sum_of_pages(turn, sum(each.author.text == name for each in _comments(turn)))


def started(turn: Turn) -> str:
    """Opens the thread and its author's profile, and reads the number."""
    (title,) = turn.asked(r'author of the thread "(.+)" start in all\?')
    return _to_author(turn, title) or answer(read(turn, r"Member since .*? (\d+) threads"))


def lively(turn: Turn) -> str:
    """Sorts the board and counts, page by page."""
    board, most = turn.asked(r"threads of the board (\w+) have more than (\d+) comments\?")
    step = to_board(turn, board, "Most comments")
    return step or sum_of_pages(turn, sum(each.comments > int(most) for each in _listed(turn)))


def points(turn: Turn) -> str:
    """Opens the author's profile and adds the points, page by page."""
    (title,) = turn.asked(r'One of them is "(.+)"\.$')
    return _to_author(turn, title) or sum_of_pages(turn, sum(each.points for each in _listed(turn)))


def top(turn: Turn) -> str:
    """Sorts the board and opens the thread at that place."""
    place, board = turn.asked(r"^Open the thread with the (.+) points in the board (\w+)\.$")
    return to_nth(turn, board, "Top", RANKS.index(place)) or DONE


def commenter(turn: Turn) -> str:
    """Opens the thread, goes to the first or last comment, and opens its author."""
    place, title = turn.asked(r'the (\w+) comment in the thread "(.+)"\.$')
    if "Member since" in turn.page.text:
        return DONE
    step = to_thread(turn, title)
    if step is not None:
        return step
    number, last = page_of(turn)
    if place == "last" and number < last:
        return link(turn, "Next")
    return click(_comments(turn)[0 if place == "first" else -1].author)


# ---- votes -----------------------------------------------------------------------------------------------------------
def vote(turn: Turn) -> str:
    """Opens the thread and votes."""
    way, title = turn.asked(r'^(\w+) the thread "(.+)" on the forum\.')
    return to_thread(turn, title) or _vote(turn, way)


def vote_all(turn: Turn) -> str:
    """Opens the thread and votes on each comment, page by page."""
    way, name, title = turn.asked(r'^Vote (\w+) every comment that (\w+) wrote in the thread "(.+)"\.$')
    step = to_thread(turn, title)
    if step is not None:
        return step
    for each in _comments(turn):
        if each.author.text == name and "you voted" not in each.points:
            return click(each.up if way == "up" else each.down)
    number, last = page_of(turn)
    return link(turn, "Next") if number < last else DONE


def vote_boards(turn: Turn) -> str:
    """Votes on the one board's newest thread, then on the other board's."""
    one, place, other = turn.asked(r"of the board (\w+) and .* the (.+) points in the board (\w+)\.$")
    if noted(turn, "voted"):
        return to_nth(turn, other, "Top", RANKS.index(place)) or _vote(turn, "Downvote")
    step = to_nth(turn, one, "New", 0) or _vote(turn, "Upvote")
    return note("voted", one, link(turn, "Boards")) if step == DONE else step


def sign_in(turn: Turn) -> str:
    """Signs in, then votes."""
    name, password, title = turn.asked(r'as (\w+) with the password (\S+) and upvote the thread "(.+)"\.$')
    if heading(turn) == "Sign in":
        return fill(turn, {"Name": name, "Password": password}, "Log in")
    if shown(turn, "Sign in"):
        return link(turn, "Sign in")
    return to_thread(turn, title) or _vote(turn, "Upvote")


def _vote(turn: Turn, way: str) -> str:
    return DONE if f"you voted {way.removesuffix('vote').lower()}" in turn.page.text else link(turn, way)


# ---- writing ---------------------------------------------------------------------------------------------------------
def comment(turn: Turn) -> str:
    """Opens the thread and writes."""
    text, title = turn.asked(r'^Write the comment "(.+)" in the thread "(.+)" on the forum\.')
    return to_thread(turn, title) or write_comment(turn, text)


def reply(turn: Turn) -> str:
    """Sorts the board, opens the thread at that place, and writes."""
    text, board, order = turn.asked(r'^Write the comment "(.+)" in .* the board (\w+) that has the (.+) points\.$')
    return to_nth(turn, board, "Top", RANKS.index(order)) or write_comment(turn, text)


def write_comment(turn: Turn, text: str) -> str:
    """Writes below a thread."""
    return DONE if "Your comment is posted." in turn.page.chunks else fill(turn, {"Comment": text}, "Post comment")


def uncomment(turn: Turn) -> str:
    """Looks for the comment in one's own list and deletes it."""
    (title,) = turn.asked(r'that I wrote in the thread "(.+?)"\.')
    if not heading(turn).startswith("Comments of"):
        return _to_own(turn, "Comments")
    if "The comment is deleted." in turn.page.chunks:
        return DONE
    found = labelled(turn, title, "a")
    if found:
        return click(nth(turn.page.numbered, turn.page.numbered.index(found[0]) + 1, "Delete"))
    number, last = page_of(turn)
    return link(turn, "Next") if number < last else answer(NOT_POSSIBLE)


def post(turn: Turn) -> str:
    """Fills the form for a new thread in."""
    board, title, text = turn.asked(r'in the board (\w+) with the title "(.+)" and the text "(.+)"\.$')
    return start_thread(turn, board, title, text)


def start_thread(turn: Turn, board: str, title: str, text: str) -> str:
    """The same, with this in it."""
    if heading(turn) == title:
        return DONE
    if heading(turn) != "New thread":
        return link(turn, "New thread")
    return fill(turn, {"Board": board, "Title": title, "Text": text}, "Post thread")


def edit(turn: Turn) -> str:
    """Opens the thread from one's own profile and edits it."""
    title, text = turn.asked(r'^Change the text of my thread "(.+)" to "(.+)"\.$')
    if heading(turn) == "Edit thread":
        return fill(turn, {"Text": text}, "Save thread")
    if heading(turn) == title:
        return DONE if "The thread is saved." in turn.page.chunks else link(turn, "Edit")
    return _to_own(turn, title)


# ---- the profile -----------------------------------------------------------------------------------------------------
def profile(turn: Turn) -> str:
    """Opens the settings and fills them in."""
    bio, email = turn.asked(r'to "(.+)" and the email to (\S+)\.$')
    if heading(turn) != "Settings":
        return _to_own(turn, "Settings")
    if "Your settings are saved." in turn.page.chunks:
        return DONE
    return fill(turn, {"Bio": bio, "Email": email}, "Save settings")


def subscribe(turn: Turn) -> str:
    """Goes from board to board and presses its button."""
    one, other, left = turn.asked(r"the boards (\w+) and (\w+), and leave the board (\w+)\.$")
    for board, button in ((one, "Subscribe"), (other, "Subscribe"), (left, "Leave")):
        if noted(turn, board) is None:
            return to_board(turn, board) or note(board, button, link(turn, button))
    return DONE


def block(turn: Turn) -> str:
    """Opens the author's profile and presses the button."""
    (title,) = turn.asked(r'who started the thread "(.+?)"\.')
    step = _to_author(turn, title)
    if step is not None:
        return step
    return DONE if shown(turn, "Unblock") else click(first(labelled(turn, "Block", "button"), "Block"))


SCRIPTS: Mapping[str, Script] = {
    "forum-author": author,
    "forum-block": block,
    "forum-boards": subscribe,
    "forum-comment": comment,
    "forum-commenter": commenter,
    "forum-edit": edit,
    "forum-lively": lively,
    "forum-points": points,
    "forum-post": post,
    "forum-profile": profile,
    "forum-reply": reply,
    "forum-said": said,
    "forum-sign-in": sign_in,
    "forum-started": started,
    "forum-top": top,
    "forum-uncomment": uncomment,
    "forum-vote": vote,
    "forum-vote-all": vote_all,
    "forum-vote-boards": vote_boards,
}
