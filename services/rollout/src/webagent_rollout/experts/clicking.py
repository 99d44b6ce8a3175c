"""Experts for tasks of one or two clicks: find the element that the instruction names and click it."""

from __future__ import annotations

from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import (
    Turn,
    click,
    click_or_scroll,
    fields,
    first,
    hover,
    icons_after,
    labelled,
    nth,
    ordinal,
    press,
    scroll,
)

_POST_ICONS = ("Reply", "Retweet", "Like")


def named_button(turn: Turn) -> str:
    """Clicks the button whose label is quoted."""
    return click_or_scroll(turn, labelled(turn, turn.quoted[0], "button"), "the named button")


def numbered_button(turn: Turn) -> str:
    """Clicks button ONE or TWO."""
    (word,) = turn.asked(r"button (\w+)\.$")
    return press(turn, word)


def button_sequence(turn: Turn) -> str:
    """Clicks button ONE, then button TWO."""
    words = turn.asked(r"button (\w+), then click button (\w+)")
    return press(turn, words[turn.moves % len(words)])


def only_button(turn: Turn) -> str:
    """Clicks the only button."""
    return click(first(turn.page.tagged("button"), "button"))


def named_link(turn: Turn) -> str:
    """Clicks the link whose text is quoted."""
    return click_or_scroll(turn, labelled(turn, turn.quoted[0]), "the named link")


def dialog_button(turn: Turn) -> str:
    """Clicks the dialog's button whose label is quoted; its "x" is the one that reads Close."""
    label = turn.quoted[0]
    return press(turn, "Close" if label == "x" else label)


def named_tab(turn: Turn) -> str:
    """Clicks the tab that the instruction names."""
    (tab,) = turn.asked(r"Click on (Tab #\d)")
    return press(turn, tab)


def widget(turn: Turn) -> str:
    """Clicks a widget of the quoted kind."""
    wanted = turn.quoted[0]
    return click_or_scroll(turn, [element for element in turn.page.numbered if _widget(element) == wanted], wanted)


def _widget(element: Element) -> str:
    if element.tag != "input":
        return element.tag
    return element.kind if element.kind in {"radio", "checkbox"} else "text"


def only_field(turn: Turn) -> str:
    """Clicks into the only text field."""
    return click(first(fields(turn), "text field"))


def nth_field(turn: Turn) -> str:
    """Clicks into the first, second or third text field."""
    (which,) = turn.asked(r"the (\d\w\w) input textbox")
    return click(nth(fields(turn), ordinal(which), "text field"))


def post_button(turn: Turn) -> str:
    """Clicks the quoted button of the named user's post: an icon, or an entry of the menu behind the last icon.

    Each icon is pointed at first: it changes its picture under the pointer, and a click meanwhile goes astray.
    """
    (user,) = turn.asked(r"For the user (@\S+), click")
    wanted = turn.quoted[0]
    if turn.moves < 2:
        icons = icons_after(turn, user)
        place = _POST_ICONS.index(wanted) if wanted in _POST_ICONS else len(_POST_ICONS)
        return (hover if turn.moves == 0 else click)(nth(icons, place, "icon")) if icons else scroll(turn, user)
    entries = [entry for entry in turn.page.tagged("li") if entry.text in {wanted, f"{wanted} {user}"}]
    return click_or_scroll(turn, entries, wanted)
