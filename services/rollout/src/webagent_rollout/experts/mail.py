"""Expert for the mail box: finds the email by its sender, then deletes, stars, answers or forwards it."""

from __future__ import annotations

from webagent_rollout.experts.script import (
    ExpertLost,
    Turn,
    click,
    click_or_scroll,
    fields,
    first,
    labelled,
    nth,
    type_text,
)

# In the list, each sender is followed by these icons.
_ICONS = ("trash", "star")


def mail(turn: Turn) -> str:
    """Does with the named sender's email what the instruction asks."""
    sender, wanted, rest = turn.asked(r"email by (.+?) and (click the \w+|reply|forward)(.*)$")
    written = fields(turn)
    if written:
        text = turn.quoted[0] if wanted == "reply" else rest.removeprefix(" that email to ").removesuffix(".")
        if written[0].value != text:
            return type_text(written[0], text)
        return click(nth(turn.page.tagged("span"), 1, "sending icon"))
    if labelled(turn, "Reply"):  # the email is open
        return click(first(labelled(turn, wanted.capitalize()), wanted))
    icon = wanted.rpartition(" ")[2]
    return _in_list(turn, sender, 1 + _ICONS.index(icon) if icon in _ICONS else 0)


def _in_list(turn: Turn, sender: str, offset: int) -> str:
    numbered = turn.page.numbered
    places = [index + offset for index, element in enumerate(numbered) if element.text == sender]
    found = [numbered[place] for place in places if place < len(numbered)]
    if found and offset and found[0].text:
        raise ExpertLost("the sender's icons are out of view")
    return click_or_scroll(turn, found, sender)
