"""Intent templates of the forum: writing threads and comments, profiles, subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from webagent_env.arena.forum.data import TOPICS, USER, title_of
from webagent_env.arena.forum.people import blocks, comments_of, threads_of
from webagent_env.arena.forum.site import PAGE, boards, subscriptions
from webagent_env.arena.forum.tasks import absent_title, threads
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, not_possible, shows, texts_of
from webagent_env.arena.words import FIRST_NAMES, LAST_NAMES, TOWNS
from webagent_env.arena.world import World

WRITING = Chapter("reddit", start=("__REDDIT__/",))
_COMMENTS = "[...document.querySelectorAll('.comment')].map((each) => each.dataset.comment).join('; ')"
_THREADS = "[...document.querySelectorAll('.thread')].map((each) => each.dataset.thread).join('; ')"
_SETTINGS = "document.querySelector('#settings').dataset.summary"
_REPLIES = (
    "Well said.",
    "I would add a photo.",
    "This helped me a lot.",
    "Where did you buy yours?",
    "Count me in.",
    "How long did it take?",
    "Not my experience at all.",
    "Do you still think so?",
)
_BODIES = (
    "Any ideas are welcome.",
    "I start next week.",
    "Is it worth the money?",
    "What do you all use?",
    "Two years in and still learning.",
    "Please share your best link.",
)


def commented(world: World, title: str, text: str) -> dict[str, object]:
    """The rule that one comment was written in a thread."""
    own = [f"{row['title']}: {row['text']}" for row in comments_of(world.data("forum"), USER)]
    return shows((f"__REDDIT__/u/{USER}/comments.html", _COMMENTS, "; ".join([f"{title}: {text}", *own][:PAGE])))


def posted(world: World, board: str, title: str, text: str) -> dict[str, object]:
    """The rule that one thread was started."""
    own = [_described(row["board_name"], row["title"], row["text"]) for row in threads_of(world.data("forum"), USER)]
    return shows((f"__REDDIT__/u/{USER}.html", _THREADS, "; ".join([_described(board, title, text), *own][:PAGE])))


def _described(board: str, title: str, text: str) -> str:
    return f"{board} | {title} | {text}"


# ---- comments --------------------------------------------------------------------------------------------------------
@WRITING.intent("forum-comment", 'Write the comment "{{text}}" in the thread "{{title}}" on the forum. ' + OR_NOT)
def comment(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, type, post."""
    for each in threads(world, draw):
        text = draw.choice(_REPLIES)
        yield Goal({"text": text, "title": each["title"]}, commented(world, each["title"], text))
        if draw.random() < 0.15:
            yield Goal({"text": text, "title": absent_title(world, draw)}, not_possible())


@WRITING.intent(
    "forum-reply",
    'Write the comment "{{text}}" in the thread of the board {{board}} that has the {{order}} points.',
    held_out=True,
)
def reply(world: World, draw: Random) -> Iterator[Goal]:
    """Board, sort, open, type, post."""
    for each in boards(world.data("forum")):
        rows = world.data("forum").all("SELECT title FROM listed WHERE board = ? ORDER BY points DESC", each["slug"])
        for order, row in zip(("most", "second most", "third most"), rows, strict=False):
            text = draw.choice(_REPLIES)
            values = {"text": text, "board": each["name"], "order": order}
            yield Goal(values, commented(world, row["title"], text))


@WRITING.intent("forum-uncomment", 'Delete the comment that I wrote in the thread "{{title}}". ' + OR_NOT)
def uncomment(world: World, draw: Random) -> Iterator[Goal]:
    """Profile, comments, further pages, delete."""
    own = comments_of(world.data("forum"), USER)
    others = [each for each in threads(world, draw) if each["title"] not in {row["title"] for row in own}]
    for row in draw.sample(own, len(own)):
        left = [f"{each['title']}: {each['text']}" for each in own if each["id"] != row["id"]]
        pages = (left[:PAGE], left[PAGE:])
        address = f"__REDDIT__/u/{USER}/comments.html?p="
        looks = [(f"{address}{number}", _COMMENTS, "; ".join(page)) for number, page in enumerate(pages, start=1)]
        yield Goal({"title": row["title"]}, shows(*looks))
        if draw.random() < 0.5:
            yield Goal({"title": others.pop()["title"]}, not_possible())


# ---- threads ---------------------------------------------------------------------------------------------------------
@WRITING.intent(
    "forum-post", 'Start a thread in the board {{board}} with the title "{{title}}" and the text "{{text}}".'
)
def post(world: World, draw: Random) -> Iterator[Goal]:
    """New thread, choose, two fields, post."""
    names = [each["name"] for each in boards(world.data("forum"))]
    for _ in range(80):
        board, text = draw.choice(names), draw.choice(_BODIES)
        title = f"{title_of(draw, board)} in {draw.choice(TOWNS)}"
        yield Goal({"board": board, "title": title, "text": text}, posted(world, board, title, text))


@WRITING.intent("forum-edit", 'Change the text of my thread "{{title}}" to "{{text}}".')
def edit(world: World, draw: Random) -> Iterator[Goal]:
    """Profile, open, edit, type, save."""
    own = threads_of(world.data("forum"), USER)
    for text in draw.sample(_BODIES + _REPLIES, len(_BODIES + _REPLIES)):
        for row in own:
            after = "; ".join(
                _described(each["board_name"], each["title"], text if each is row else each["text"]) for each in own
            )
            yield Goal({"title": row["title"], "text": text}, shows((f"__REDDIT__/u/{USER}.html", _THREADS, after)))


# ---- the profile -----------------------------------------------------------------------------------------------------
@WRITING.intent("forum-profile", 'Set the bio in my forum profile to "{{bio}}" and the email to {{email}}.')
def profile(world: World, draw: Random) -> Iterator[Goal]:
    """Profile, settings, two fields, save."""
    for _ in range(80):
        bio = f"{draw.choice(('Fond of', 'New to', 'Crazy about'))} {draw.choice(TOPICS[draw.choice(list(TOPICS))])}."
        email = f"{draw.choice(FIRST_NAMES)}.{draw.choice(LAST_NAMES)}@mail.test".lower()
        yield Goal({"bio": bio, "email": email}, shows(("__REDDIT__/settings.html", _SETTINGS, f"{bio} | {email}")))


@WRITING.intent("forum-boards", "Subscribe to the boards {{one}} and {{other}}, and leave the board {{left}}.")
def subscribe(world: World, draw: Random) -> Iterator[Goal]:
    """Three boards, a button in each."""
    data = world.data("forum")
    held = subscriptions(data, USER)
    names = [each["name"] for each in boards(data) if each["slug"] in held]
    free = [each["name"] for each in boards(data) if each["slug"] not in held]
    for _ in range(100):
        one, other = draw.sample(free, 2)
        left = draw.choice(names)
        after = sorted({*names, one, other} - {left})
        rule = shows(("__REDDIT__/settings.html", texts_of("#boards"), ", ".join(after)))
        yield Goal({"one": one, "other": other, "left": left}, rule)


@WRITING.intent("forum-block", 'Block the member who started the thread "{{title}}". ' + OR_NOT, held_out=True)
def block(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, author, block."""
    held = blocks(world.data("forum"), USER)
    for each in threads(world, draw, f"author <> '{USER}'"):
        if each["author"] not in held:
            after = ", ".join(sorted([*held, each["author"]]))
            yield Goal({"title": each["title"]}, shows(("__REDDIT__/settings.html", texts_of("#blocked"), after)))
        if draw.random() < 0.2:
            yield Goal({"title": absent_title(world, draw)}, not_possible())
