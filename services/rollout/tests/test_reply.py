"""Cutting the action out of a reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent_rollout.reply import MAX_ACTION_BYTES, cut_action, demonstrate

ACTION = 'do(action="Click", element="7")'
TAGS = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", ACTION, " ", "\n", "<", "answer>"])
replies = st.lists(st.one_of(TAGS, st.text(max_size=20))).map("".join)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (f"<think>a button</think>\n<answer>\n{ACTION}\n</answer>", ACTION),
        (f"<think>a</think><answer>{ACTION}</answer><answer>exit()</answer>", ACTION),
        (f"<answer># Note: price 3\n{ACTION}</answer> more", f"# Note: price 3\n{ACTION}"),
        (f"<think>a</think><answer>{ACTION}", ACTION),
        (f"<think>a</think> {ACTION}", ACTION),
        (f" {ACTION}\n", ACTION),
        (f"<think>perhaps {ACTION}, or", ""),
        ("<answer></answer>", ""),
        ("", ""),
    ],
)
def test_the_answer_is_cut_out_of_a_thinking_reply(reply: str, action: str) -> None:
    assert cut_action(reply, thinking=True) == action


@given(replies)
def test_a_reply_without_thinking_is_the_action_itself(reply: str) -> None:
    assert cut_action(reply, thinking=False) == reply.strip()


@given(replies)
def test_the_cut_is_a_piece_of_any_thinking_reply_without_white_space_around(reply: str) -> None:
    action = cut_action(reply, thinking=True)
    assert action in reply
    assert action == action.strip()


@given(replies, replies)
def test_a_closed_answer_is_returned_whatever_follows(answer: str, rest: str) -> None:
    expected = answer.partition("</answer>")[0].strip()
    assert cut_action(f"<think>x</think><answer>{answer}</answer>{rest}", thinking=True) == expected


@given(st.text(alphabet="aé€😀", min_size=1, max_size=8))
def test_no_cut_is_longer_than_env_takes(pattern: str) -> None:
    reply = pattern * MAX_ACTION_BYTES
    action = cut_action(reply, thinking=False)
    assert MAX_ACTION_BYTES - 4 < len(action.encode()) <= MAX_ACTION_BYTES
    assert reply.startswith(action)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_demonstration_is_cut_back_to_the_expert_s_action(thinking: bool) -> None:
    assert cut_action(demonstrate(ACTION, thinking=thinking), thinking=thinking) == ACTION
