"""Experts for forms: fill the fields in page order, set the choices, then press the button.

They go by what the page shows as filled in already, so an interruption such as a popup does not confuse them.
"""

from __future__ import annotations

from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import (
    ExpertLost,
    Turn,
    click,
    click_or_scroll,
    fields,
    fill_then_press,
    first,
    labelled,
    nth,
    ordinal,
    press,
    select,
    type_text,
    whole_number,
)


def enter_text(turn: Turn) -> str:
    """Types the quoted text and submits."""
    return fill_then_press(turn, [(first(fields(turn), "text field"), turn.quoted[0])], "Submit")


def enter_text_in_case(turn: Turn) -> str:
    """Types the quoted text in upper or lower case and submits."""
    (case,) = turn.asked(r"all (upper|lower) case")
    text = turn.quoted[0].upper() if case == "upper" else turn.quoted[0].lower()
    return fill_then_press(turn, [(first(fields(turn), "text field"), text)], "Submit")


def enter_password(turn: Turn) -> str:
    """Types the quoted password into both fields and submits."""
    both = [nth(fields(turn), index, "password field") for index in range(2)]
    return fill_then_press(turn, [(field, turn.quoted[0]) for field in both], "Submit")


def enter_date(turn: Turn) -> str:
    """Types the date into the date field, year first, and submits."""
    month, day, year = turn.asked(r"Enter (\d\d)/(\d\d)/(\d{4})")
    return fill_then_press(turn, [(first(fields(turn), "date field"), f"{year}-{month}-{day}")], "Submit")


def enter_time(turn: Turn) -> str:
    """Types the time into the time field, by the 24-hour clock, and submits."""
    hour, minute, half = turn.asked(r"Enter (\d+):(\d\d) ([AP])M")
    hour = f"{int(hour) % 12 + (12 if half == 'P' else 0):02}"
    return fill_then_press(turn, [(first(fields(turn), "time field"), f"{hour}:{minute}")], "Submit")


def login(turn: Turn) -> str:
    """Types user name and password and logs in; cancels the popup that may come up meanwhile."""
    cancel = labelled(turn, "Cancel", "button")
    if cancel:
        return click(cancel[0])
    texts = [(nth(fields(turn), index, "login field"), text) for index, text in enumerate(turn.quoted[:2])]
    for field, text in texts:
        if field.value != text:
            return type_text(field, text)
    return click(first(turn.page.tagged("button"), "login button"))


def choose_from_list(turn: Turn) -> str:
    """Picks the named options of the list, in the given order, and submits."""
    (names,) = turn.asked(r"^Select (.+) from the (?:scroll )?list and click Submit")
    options = first(turn.page.tagged("select"), "list")
    for name in names.split(", "):
        if name not in options.chosen:
            return select(options, name)
    return press(turn, "Submit")


def check_named(turn: Turn) -> str:
    """Checks every named box, from top to bottom, and submits."""
    (names,) = turn.asked(r"^Select (.+) and click Submit")
    wanted = names.split(", ")
    for box in turn.page.tagged("input"):
        if _caption(box) in wanted and not box.checked:
            return click(box)
    return press(turn, "Submit")


def choose_option(turn: Turn) -> str:
    """Chooses the named radio button and submits."""
    (name,) = turn.asked(r"^Select (.+) and click Submit")
    options = [option for option in turn.page.tagged("input") if _caption(option) == name]
    if options and options[0].checked:
        return press(turn, "Submit")
    return click_or_scroll(turn, options, name)


def _caption(choice: Element) -> str:
    return choice.trail[0] if choice.trail else ""


def radio_and_number(turn: Turn) -> str:
    """Chooses one of three radio buttons, enters the number into one of three fields and submits."""
    radio_word, number, field_word = turn.asked(r'the (\w+) radio button and enter the number "(-?\d+)" into the (\w+)')
    radios = [element for element in turn.page.tagged("input") if element.kind == "radio"]
    radio = nth(radios, ordinal(radio_word), "radio button")
    if not radio.checked:
        return click(radio)
    return fill_then_press(turn, [(nth(fields(turn), ordinal(field_word), "text field"), number)], "Submit")


def dropdown_then_button(turn: Turn) -> str:
    """Opens the drawn dropdown, picks the named entry, then clicks the quoted button."""
    (entry,) = turn.asked(r"^Choose (.+) from the dropdown")
    shown = [element for element in turn.page.elements if element.tag == "span"]
    if shown and shown[0].text == entry:
        return press(turn, turn.quoted[0])
    if not turn.page.tagged("li"):
        return click(first(turn.page.numbered, "dropdown"))
    return click_or_scroll(turn, labelled(turn, entry, "li"), entry)


def spinner(turn: Turn) -> str:
    """Clicks the arrow up or down until the field shows the number, then submits."""
    (number,) = turn.asked(r"Select (-?\d+) with the spinner")
    up, down = (nth(turn.page.tagged("span"), index, "arrow") for index in range(2))
    difference = whole_number(number) - whole_number(first(fields(turn), "spinner").value)
    if difference == 0:
        return press(turn, "Submit")
    return click(up if difference > 0 else down)


def movie_search(turn: Turn) -> str:
    """Fills genre, director and year, wherever the layout puts them, and presses the last element."""
    genre, director, year = turn.asked(r"Search for (.+) movies directed by (.+) from year (\d+)")
    answers = {"Genre": genre, "Director": director, "Year": year, "Date": year}
    for index, field in enumerate(fields(turn)):
        caption = _field_caption(turn, index)
        answer = next((text for word, text in answers.items() if word in caption), None)
        if answer is None:
            raise ExpertLost(f"no answer for the field {caption!r}")
        if field.value != answer:
            return type_text(field, answer)
    return click(turn.page.numbered[-1])


def _field_caption(turn: Turn, index: int) -> str:
    field = fields(turn)[index]
    captions_follow = fields(turn)[-1].trail != ()
    nearest = field.trail[:1] if captions_follow else field.lead[-1:]
    return nearest[0] if nearest else ""
