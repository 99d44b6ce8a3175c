"""Reading an observation back, and how experts say that they are lost."""

from __future__ import annotations

import ast
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webagent_rollout.experts import EXPERTS, ExpertLost
from webagent_rollout.experts.page import parse

FORM = (
    '<div><label>Username</label><input id="0" type="text" data-value="ida"/>'
    '<label><input id="1" type="checkbox" data-status="checked"/>Stay</label>'
    '<button id="2">Log in</button> or <b>leave</b></div>'
)
words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


def test_numbered_elements_come_in_document_order() -> None:
    assert [(element.number, element.tag) for element in parse(FORM).numbered] == [
        ("0", "input"),
        ("1", "input"),
        ("2", "button"),
    ]


def test_loose_text_belongs_to_the_elements_on_both_sides() -> None:
    field, box, button = parse(FORM).numbered

    assert (field.lead, field.trail) == (("Username",), ())
    assert (box.lead, box.trail) == ((), ("Stay",))
    assert (button.lead, button.trail) == (("Stay",), ("or", "leave"))


def test_fields_and_boxes_say_what_they_hold() -> None:
    field, box, button = parse(FORM).numbered

    assert (field.kind, field.value, box.checked, button.text) == ("text", "ida", True, "Log in")


def test_a_dropdown_knows_its_selected_options() -> None:
    options = '<option>Rome</option><option data-status="selected">Oslo &amp; Bergen</option>'

    (dropdown,) = parse(f'<select id="0">{options}</select>').numbered

    assert dropdown.chosen == ("Oslo & Bergen",)


@given(text=words, value=words)
def test_text_and_values_survive_escaping(text: str, value: str) -> None:
    def escaped(plain: str) -> str:
        return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

    (element,) = parse(f'<textarea id="0" data-value="{escaped(value)}">{escaped(text)}</textarea>').numbered

    assert (element.text, element.value) == (text, value)


@given(st.text())
def test_any_text_can_be_parsed(observation: str) -> None:
    page = parse(observation)

    assert len(page.numbered) <= len(page.elements)


def element(tag: str, number: str, kind: str, text: str) -> str:
    return f'{text}<{tag}{number} type="{kind}" data-value="{text}">{text}</{tag}>'


texts = st.sampled_from(["", "Submit", "Primary", "Reply", "Section #1", "-1", "99", "x + 9 = 9", "higher than 9", "½"])
pages = st.lists(
    st.builds(
        element,
        st.sampled_from(["input", "textarea", "button", "span", "div", "select", "li", "a", "td", "p"]),
        st.sampled_from(["", ' id="0"', ' id="7"']),
        st.sampled_from(["text", "radio", "checkbox"]),
        texts,
    ),
    max_size=8,
).map("".join)
instructions = st.sampled_from(
    [
        "",
        'Click on the "Submit" button.',
        'Select 0 with the spinner, "-1" too.',
        "Find the email by Primary and reply to them.",
        'Check the 3rd radio button and enter the number "7" into the 0th textbox.',
        "Find the 0th word in the paragraph.",
        "Select 12/99/2016 as the date and hit submit.",
        'Use the textbox to enter "x", then find and click the 9th search result.',
    ]
)


@settings(max_examples=60, deadline=None)
@given(instructions | st.text(), pages | st.text())
def test_an_expert_on_a_foreign_page_acts_or_is_lost(instruction: str, observation: str) -> None:
    for expert in EXPERTS.values():
        with contextlib.suppress(ExpertLost):
            assert expert(instruction, observation, []).startswith('do(action="')


def test_an_expert_without_its_page_is_lost() -> None:
    with pytest.raises(ExpertLost, match="shows 0 of: text field"):
        EXPERTS["miniwob/enter-text"]('Enter "Ida" into the text field and press Submit.', "<p>Nothing</p>", [])


def test_scrolling_for_a_missing_button_ends() -> None:
    past = ['do(action="Scroll Down")'] * 4

    with pytest.raises(ExpertLost, match="however far it is scrolled"):
        EXPERTS["miniwob/click-button"]('Click on the "Okay" button.', "<p>Nothing</p>", past)


def test_quotes_in_what_is_typed_are_escaped() -> None:
    page = '<td>Name</td><td>Ida &quot;I\\&quot;</td><input id="0"/><button id="1">Submit</button>'

    action = EXPERTS["miniwob/read-table"]("Enter the value of Name into the text field and press Submit.", page, [])

    assert ast.literal_eval(action.split("argument=")[1].split(", element")[0]) == 'Ida "I\\"'
