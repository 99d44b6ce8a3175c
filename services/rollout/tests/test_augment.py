"""Demonstrations with a chain of thought: the same actions, prompts that ask to think, and any endpoint's words."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_FAILURE, OUTCOME_SUCCESS
from webagent.inference.v1.inference_pb2 import RenderRequest, RenderResponse
from webagent.trajectory.v1.trajectory_pb2 import PayloadRef, Trajectory
from webagent_rollout.augment import augment
from webagent_rollout.endpoint import model_at
from webagent_rollout.prompt import system_text
from webagent_rollout.reply import cut_action
from webagent_rollout.testing import endpoint
from webagent_rollout.thoughts import Explainer, Move, Template, cleaned
from webagent_runtime import chat
from webagent_runtime.chat import Chat, ChatError

CLICK = '# Note: the price is 7\ndo(action="Click", element="7")'
MOVE = Move("buy it", ['do(action="Scroll Down")'], "<p>page</p>", CLICK)


class Bytes:
    """Renders text as its bytes."""

    def __init__(self) -> None:
        self.asked: list[RenderRequest] = []

    async def render(self, request: RenderRequest) -> RenderResponse:
        self.asked.append(request)
        parts = [bytes(m.token_ids.ids) if m.HasField("token_ids") else m.text.encode() for m in request.messages]
        return RenderResponse(prompt_token_ids=b"|".join(parts), reply_token_ids=request.reply_text.encode())


class Nowhere:
    async def get(self, ref: PayloadRef) -> bytes:
        return b"a long page"


def demonstration(*, success: bool = True) -> Trajectory:
    made = Trajectory(instruction="buy it")
    made.verdict.outcome = OUTCOME_SUCCESS if success else OUTCOME_FAILURE
    made.episode.agent.prompt, made.episode.agent.compress_context = "webarena", True
    for page, action in (("first page", 'do(action="Scroll Down")'), ("second page", CLICK)):
        made.turns.add(observation_text=page, action_text=action, reply_text=action, reply_token_ids=action.encode())
    return made


async def all_of(
    trajectories: list[Trajectory], thinker: Any, left_out: Counter[str]
) -> tuple[list[Trajectory], Bytes]:
    renderer = Bytes()
    return [made async for made in augment(trajectories, thinker, renderer, Nowhere(), left_out)], renderer


async def test_actions_stay_and_prompts_ask_to_think() -> None:
    left_out: Counter[str] = Counter()
    source = demonstration()
    pageless = demonstration()
    pageless.turns[0].observation_text = ""
    (made,), renderer = await all_of([demonstration(success=False), source, pageless], Template(), left_out)
    assert left_out == {"not successful": 1, "page not kept": 1}
    assert made.episode.agent.thinking
    assert [cut_action(turn.reply_text, thinking=True) for turn in made.turns] == [t.action_text for t in source.turns]
    assert renderer.asked[0].messages[0].text == system_text("webarena", thinking=True)
    last = bytes(made.turns[1].prompt_token_ids)
    assert b"second page" in last
    assert b"first page" not in last
    # The earlier reply stands in the prompt as the very tokens that are learned.
    assert bytes(made.turns[0].reply_token_ids) in last


async def test_long_pages_come_from_where_they_are_kept() -> None:
    source = demonstration()
    source.turns[0].observation_text = ""
    source.turns[0].observation_ref.uri = "file:///long"
    (made,), _ = await all_of([source], Template(), Counter())
    assert b"a long page" in bytes(made.turns[0].prompt_token_ids)


@given(st.text())
def test_no_thought_can_end_itself_or_choose_an_action(thought: str) -> None:
    text = f"<think>{cleaned(thought + '</think><answer>exit()</answer>')}</think><answer>go_backward()</answer>"
    assert cut_action(text, thinking=True) == "go_backward()"


async def test_the_template_says_the_same_of_the_same_move() -> None:
    assert await Template().think(MOVE) == await Template().think(MOVE)
    assert "the price is 7" in await Template().think(MOVE)


GOOD = json.dumps({"choices": [{"message": {"content": "Because it is <answer>cheap</answer>."}}]}).encode()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_WAIT_SECONDS", 0.01)


async def test_an_endpoint_is_asked_with_all_fields_and_again_after_a_failure() -> None:
    with endpoint(b"", b"{}", GOOD) as (url, seen):
        thought = await Explainer(model_at(url, "thinker")).think(MOVE)
    assert cleaned(thought) == "Because it is cheap ."
    assert len(seen) == 3
    asked = seen[-1]["messages"][0]["content"]
    assert seen[-1]["model"] == "thinker"
    for field in ("buy it", '1. do(action="Scroll Down")', "<p>page</p>", CLICK, "Note: the price is 7"):
        assert field in asked


async def test_an_endpoint_that_stays_silent_is_named() -> None:
    with endpoint(b"", b"") as (url, seen):
        with pytest.raises(ChatError, match=url):
            await Chat(url, "thinker", attempts=2).ask("why?")
        assert len(seen) == 2
