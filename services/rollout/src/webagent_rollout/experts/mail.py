"""Expert for the mail box: finds the email by its sender, then deletes, stars, answers or forwards it."""

from __future__ import annotations

from webagent_rollout.experts.script import (
    Turn,
    click,
    click_or_scroll,
    fields,
    first,
    icons_after,
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
    if icon in _ICONS:
        return click_or_scroll(turn, icons_after(turn, sender)[_ICONS.index(icon) :], sender)
    return click_or_scroll(turn, labelled(turn, sender), sender)
