"""The text form of actions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webagent_env.actions import (
    Action,
    Click,
    Exit,
    GoBackward,
    GoForward,
    Goto,
    Hover,
    PressEnter,
    PressKey,
    Reason,
    Rejected,
    RightClick,
    ScrollDown,
    ScrollUp,
    Search,
    SelectDropdownOption,
    SwitchTab,
    Type,
    Wait,
)
from webagent_env.grammar import MAX_TEXT_BYTES, format_action, parse_action

WRITTEN = [
    ('do(action="Click", element="7")', Click("7")),
    ("do(action='click', element=7)", Click("7")),
    ('do(element="07", action="Right Click")', RightClick("7")),
    ('do(action="Type", argument="a \\"b\\"", element="3")', Type("3", 'a "b"')),
    ('do(action="Search", argument="LAX", element="13")', Search("13", "LAX")),
    ('do(action="Hover", element="0")', Hover("0")),
    ('do(action="Scroll Up")', ScrollUp()),
    ('do(action="Scroll Down")', ScrollDown()),
    ('do(action="Press Enter")', PressEnter()),
    ('do(action="Switch Tab", argument="1")', SwitchTab(1)),
    ('do(action="Switch Tab", argument=1)', SwitchTab(1)),
    ('do(action="Select Dropdown Option", argument="May", element="20")', SelectDropdownOption("20", "May")),
    ('do(action="Wait")', Wait()),
    ('exit(message="It is $5.")', Exit("It is $5.")),
    ("exit()", Exit("")),
    ("go_backward()", GoBackward()),
    ("go_forward()", GoForward()),
    ('do(action="Press Key", argument="ctrl+shift+ArrowDown")', PressKey("Control+Shift+ArrowDown")),
    ('do(action="Press Key", argument="esc")', PressKey("Escape")),
    ('do(action="Press Key", argument=" ")', PressKey("Space")),
    ('do(action="Press Key", argument="Control++")', PressKey("Control++")),
    ('do(action="Goto", argument="https://example.com:8443/a?b#c")', Goto("https://example.com:8443/a?b#c")),
    ('do(action="Go Backward")', GoBackward()),
    ('# Element: the button "do(...)"\n# Note: exit(message="x")\n\ndo(action="Click", element="1")', Click("1")),
    ('  do(\n  action="Click",\n  element="1",\n)  # done\n', Click("1")),
]

REFUSED = [
    ("", Reason.MALFORMED),
    ("# only a note", Reason.MALFORMED),
    ("I would click it", Reason.MALFORMED),
    ('do(action="Click", element="1"', Reason.MALFORMED),
    ('do(action="Click", element="1") do(action="Wait")', Reason.MALFORMED),
    ('do(action="Click", element="1")\nexit()', Reason.MALFORMED),
    ('do(action="Click", element="1").x', Reason.MALFORMED),
    ('click(element="1")', Reason.MALFORMED),
    ('__import__("os").system("true")', Reason.MALFORMED),
    ('do(action="Click\x00", element="1")', Reason.MALFORMED),
    ('do("Click", "1")', Reason.BAD_ARGUMENT),
    ("do()", Reason.BAD_ARGUMENT),
    ('do(action="Click")', Reason.BAD_ARGUMENT),
    ('do(action="Click", element="the button")', Reason.BAD_ARGUMENT),
    ('do(action="Click", element=None)', Reason.BAD_ARGUMENT),
    ('do(action="Click", element=True)', Reason.BAD_ARGUMENT),
    ('do(action="Click", element=-1)', Reason.BAD_ARGUMENT),
    ('do(action="Click", element=f"{1}")', Reason.BAD_ARGUMENT),
    ('do(action="Click", element=__import__("os").getpid())', Reason.BAD_ARGUMENT),
    ('do(action="Click", element="1", argument="x")', Reason.BAD_ARGUMENT),
    ('do(action="Click", element="1", element="2")', Reason.BAD_ARGUMENT),
    ('do(action="Click", **{"element": "1"})', Reason.BAD_ARGUMENT),
    ('do(action="Type", argument="\\ud800", element="1")', Reason.BAD_ARGUMENT),
    ("go_backward(steps=2)", Reason.BAD_ARGUMENT),
    ('do(action="Fly")', Reason.UNKNOWN_ACTION),
    ('do(action="Upload", element="1")', Reason.UNKNOWN_ACTION),
    ('do(action="Press Key", argument="")', Reason.BAD_ARGUMENT),
    ('do(action="Press Key", argument="Control+")', Reason.BAD_ARGUMENT),
    ('do(action="Press Key", argument="Hyper+a")', Reason.BAD_ARGUMENT),
    ('do(action="Press Key", argument="Control+Control+a")', Reason.BAD_ARGUMENT),
    ('do(action="Press Key", argument="abc")', Reason.BAD_ARGUMENT),
    ('do(action="Goto", argument="file:///etc/passwd")', Reason.BAD_ARGUMENT),
    ('do(action="Goto", argument="javascript:alert(1)")', Reason.BAD_ARGUMENT),
    ('do(action="Goto", argument="data:text/html,x")', Reason.BAD_ARGUMENT),
    ('do(action="Goto", argument="example.com")', Reason.BAD_ARGUMENT),
    ('do(action="Goto", argument="http://[::1/")', Reason.BAD_ARGUMENT),
    ('exit(message="' + "x" * MAX_TEXT_BYTES + '")', Reason.TOO_LONG),
]


@pytest.mark.parametrize(("text", "action"), WRITTEN)
def test_every_declared_form_is_understood(text: str, action: Action) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_everything_else_is_refused_with_a_reason(text: str, reason: Reason) -> None:
    parsed = parse_action(text)
    assert isinstance(parsed, Rejected)
    assert parsed.reason is reason
    assert 0 < len(parsed.message) < 400


def test_positional_arguments_are_refused_by_name() -> None:
    parsed = parse_action('do("Click", element="1")')
    assert isinstance(parsed, Rejected)
    assert "no positional arguments" in parsed.message


@pytest.mark.parametrize("text", ["(" * 60_000, "do(x=" + "(" * 60_000, "do(x=" + "-" * 60_000 + "1)", "do" * 40_000])
def test_huge_and_nested_input_is_refused(text: str) -> None:
    assert isinstance(parse_action(text), Rejected)


def test_the_bound_counts_bytes() -> None:
    text = 'exit(message="' + "é" * (MAX_TEXT_BYTES // 2) + '")'
    assert len(text) < MAX_TEXT_BYTES
    assert getattr(parse_action(text), "reason", None) is Reason.TOO_LONG


numbers = st.integers(0, 999_999_999).map(str)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
known_actions = st.one_of(
    st.builds(Click, numbers),
    st.builds(RightClick, numbers),
    st.builds(Hover, numbers),
    st.builds(Type, numbers, texts),
    st.builds(Search, numbers, texts),
    st.builds(SelectDropdownOption, numbers, texts),
    st.builds(SwitchTab, st.integers(0, 999_999_999)),
    st.builds(Exit, texts),
    st.sampled_from([ScrollUp(), ScrollDown(), PressEnter(), Wait(), GoBackward(), GoForward()]),
)


@given(known_actions)
@settings(max_examples=300)
def test_what_is_written_is_read_back(action: Action) -> None:
    assert parse_action(format_action(action)) == action


@given(st.text(max_size=400))
@settings(max_examples=300)
def test_any_text_is_an_action_or_refused(text: str) -> None:
    parse_action(text)


fragments = st.sampled_from(
    [
        "do",
        "exit",
        "(",
        ")",
        "action=",
        "element=",
        '"Click"',
        '"',
        "'",
        ",",
        "7",
        "#",
        "\n",
        "\\",
        "**",
        "f",
        "lambda:",
        " ",
    ]
)


@given(st.lists(fragments, max_size=30).map("".join))
@settings(max_examples=300)
def test_almost_actions_are_an_action_or_refused(text: str) -> None:
    parsed = parse_action(text)
    if not isinstance(parsed, Rejected):
        assert parse_action(format_action(parsed)) == parsed
