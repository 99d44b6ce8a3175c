"""Chance: every action that a page allows can be drawn, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st
from webagent_rollout.chance import BACK, LEAVE, Chance
from webagent_rollout.experts.script import SCROLL_DOWN

PAGE = """<body> Hello <button id="0"> Go </button> <input id="1" type="text"> </input>
<input id="2" type="radio"> </input>
<select id="3" data-value="a"> <option> Ana </option> <option data-status="selected"> Bo </option> </select>
<textarea id="4"> </textarea> </body>"""


def test_every_action_of_a_page_is_drawn_and_no_other() -> None:
    drawn = {Chance(seed)("buy", PAGE, []) for seed in range(400)}
    assert drawn == {
        *(SCROLL_DOWN, BACK, LEAVE),
        'do(action="Click", element="0")',
        'do(action="Type", argument="buy", element="1")',
        'do(action="Click", element="2")',
        'do(action="Select Dropdown Option", argument="Ana", element="3")',
        'do(action="Select Dropdown Option", argument="Bo", element="3")',
        'do(action="Type", argument="buy", element="4")',
    }


@given(st.text(), st.text(), st.integers(0, 2**64 - 1))
def test_whatever_comes_in_the_same_seed_and_turn_draw_the_same(instruction: str, page: str, seed: int) -> None:
    first, again = (Chance(seed)(instruction, page, ["go_backward()"]) for _ in range(2))
    assert first == again
    assert first
