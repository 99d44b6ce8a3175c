"""Composing the conversation."""

from collections.abc import Sequence
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from webagent.env.v1.env_pb2 import Observation, Tab
from webagent.inference.v1.inference_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER, Message
from webagent.trajectory.v1.trajectory_pb2 import Turn
from webagent_rollout.prompt import (
    LAYOUTS,
    MAX_NOTICE_CHARACTERS,
    Page,
    compose,
    has_form,
    page_of,
    past_reply,
    system_text,
)

texts = st.text(max_size=60)
token_ids = st.lists(st.integers(0, 50_000), max_size=8)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Page], list[list[int]]]:
    replies = draw(st.lists(token_ids, max_size=6))
    pages = [Page(f"<page {i}>{draw(texts)}", draw(texts)) for i in range(len(replies) + 1)]
    return pages, replies


def composed(prompt: str, pages: Sequence[Page], replies: Sequence[list[int]], *, compress: bool) -> list[Message]:
    return compose(prompt, thinking=False, compress=compress, instruction="Do {it}.", pages=pages, replies=replies)


@given(st.sampled_from(sorted(LAYOUTS)), conversations(), st.booleans())
def test_every_past_reply_is_kept_as_it_was_sampled(
    prompt: str, talk: tuple[list[Page], list[list[int]]], compress: bool
) -> None:
    pages, replies = talk
    messages = composed(prompt, pages, replies, compress=compress)
    assert [list(m.token_ids.ids) for m in messages if m.role == ROLE_ASSISTANT] == replies
    assert all(m.WhichOneof("content") == "token_ids" for m in messages if m.role == ROLE_ASSISTANT)


@given(st.sampled_from(sorted(LAYOUTS)), conversations())
def test_only_the_newest_page_is_shown_in_full_under_compression(
    prompt: str, talk: tuple[list[Page], list[list[int]]]
) -> None:
    pages, replies = talk
    messages = composed(prompt, pages, replies, compress=True)
    assert messages[-1].text.endswith(pages[-1].text)
    for page, message in zip(pages[:-1], messages[1:-1:2], strict=True):
        assert page.text not in message.text
        assert message.text.endswith((LAYOUTS[prompt].stand_in, "Do {it}.")) or not replies


@given(st.sampled_from(sorted(LAYOUTS)), conversations())
def test_without_compression_every_prompt_extends_the_one_before(
    prompt: str, talk: tuple[list[Page], list[list[int]]]
) -> None:
    pages, replies = talk
    whole = composed(prompt, pages, replies, compress=False)
    for turn in range(len(replies)):
        earlier = composed(prompt, pages[: turn + 1], replies[:turn], compress=False)
        assert whole[: len(earlier)] == earlier


@given(st.sampled_from(sorted(LAYOUTS)), conversations(), st.booleans())
def test_roles_alternate_and_the_user_speaks_last(
    prompt: str, talk: tuple[list[Page], list[list[int]]], compress: bool
) -> None:
    messages = composed(prompt, *talk, compress=compress)
    assert [m.role for m in messages] == [ROLE_SYSTEM, ROLE_USER, *[ROLE_ASSISTANT, ROLE_USER] * len(talk[1])]


def test_the_webarena_layout_counts_rounds_and_names_the_instruction_once() -> None:
    messages = composed("webarena", [Page("<a>"), Page("<b>")], [[1, 2]], compress=True)
    assert messages[1].text == "Task Instruction: Do {it}.\n\nRound 0\n\n** Simplified html **"
    assert messages[3].text == "Round 1\n\n<b>"


def test_a_problem_becomes_one_short_line_before_the_page() -> None:
    page = page_of(Observation(text="<a>"), "no element\n\n'9' " + "x" * 500)
    assert page.notice.startswith("Last action failed: no element '9' x")
    assert "\n" not in page.notice
    assert len(page.notice) < MAX_NOTICE_CHARACTERS + 30
    assert composed("compact", [Page("<a>"), page], [[1]], compress=True)[-1].text == f"{page.notice}\n<a>"


def test_tabs_are_listed_only_when_there_are_several() -> None:
    one, two = Tab(title="Shop", active=True), Tab(title="Map")
    assert page_of(Observation(text="<a>", tabs=[one])).text == "<a>"
    assert page_of(Observation(text="<a>", tabs=[one, two])).text == "Tabs: 0: Shop (shown); 1: Map\n<a>"


def test_the_layout_of_webrl_s_checkpoints_is_rendered_to_the_byte() -> None:
    """By the template that such a model's directory is given; the reply's tokens are bytes here, its end is 0."""
    turn = Turn(reply_token_ids=[*b'do(action="Wait")', 0])
    messages = composed("webrl", [Page("<a>"), Page("<b>")], [past_reply("webrl", turn)], compress=True)
    roles = {ROLE_SYSTEM: "system", ROLE_USER: "user", ROLE_ASSISTANT: "assistant"}
    conversation = [{"role": roles[m.role], "content": m.text or bytes(m.token_ids.ids).decode()} for m in messages]
    source = (files("webagent_rollout") / "prompts" / "webrl.jinja").read_text()
    template = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).from_string(source)
    user, assistant = (f"<|start_header_id|>{role}<|end_header_id|>\n" for role in ("user", "assistant"))
    assert template.render(messages=conversation, bos_token="<|begin_of_text|>") == (
        "<|begin_of_text|>Task Instruction: Do {it}.\n\n"
        f"Round 0\n\n<|eot_id|>{user}Do {{it}}.\n\n<|eot_id|>{assistant}"
        'do(action="Wait")\n\n'
        f"Round 1\n\n<|eot_id|>{user}<b>\n\n<|eot_id|>{assistant}"
    )


def test_a_prompt_without_a_form_that_thinks_says_so() -> None:
    assert has_form("webrl", thinking=False)
    assert not has_form("webrl", thinking=True)
    assert not has_form("none", thinking=False)


@pytest.mark.parametrize("prompt", sorted(LAYOUTS.keys() - {"webrl"}))
@pytest.mark.parametrize("thinking", [True, False])
def test_each_prompt_ships_its_text_and_asks_for_tags_only_when_thinking(prompt: str, thinking: bool) -> None:
    text = system_text(prompt, thinking=thinking)
    assert 'do(action="Click", element="' in text
    assert ("<answer>" in text) is thinking
