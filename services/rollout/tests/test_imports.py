"""Imported steps: both layouts of the file give the same step, and its prompt is composed as any episode's."""

from collections import Counter

import pytest
from webagent.inference.v1.inference_pb2 import RenderRequest, RenderResponse
from webagent_rollout.imports import Step, UnreadableError, demonstrations, read_step
from webagent_rollout.prompt import LAYOUTS, system_text

USER, ASSISTANT = (f"<|eot_id|><|start_header_id|>{role}<|end_header_id|>\n" for role in ("user", "assistant"))
FIRST, SECOND = 'do(action="Scroll Down")', '# Note: cheap\ndo(action="Click", element="7")'
ONE_TEXT = {
    "conversations": [
        {
            "from": "human",
            "value": f"Task Instruction: Buy the mug\n\nRound 0\n\n{USER}Buy the mug\n\n{ASSISTANT}{FIRST}\n\n"
            f"Round 1\n\n{USER}<html> mug </html>\n\n{ASSISTANT}",
        },
        {"from": "gpt", "value": SECOND},
    ]
}
MESSAGES = {
    "conversations": [
        {"from": "system", "value": "You browse."},
        {"from": "human", "value": "Task Instruction: Buy the mug\n\nRound 0\n\n** Simplified html **"},
        {"from": "gpt", "value": FIRST},
        {"from": "human", "value": "Round 1\n\n<html> mug </html>"},
        {"from": "gpt", "value": SECOND},
    ]
}
SINGLE = {
    "messages": [
        {"role": "user", "content": "Task Instruction: Buy the mug\n\nRound 0\n\n<html> shop </html>"},
        {"role": "assistant", "content": FIRST},
    ]
}
STEP = Step("Buy the mug", (FIRST,), "<html> mug </html>", SECOND)


class Bytes:
    async def render(self, request: RenderRequest) -> RenderResponse:
        parts = [bytes(m.token_ids.ids) if m.HasField("token_ids") else m.text.encode() for m in request.messages]
        return RenderResponse(prompt_token_ids=b"|".join(parts), reply_token_ids=request.reply_text.encode())


@pytest.mark.parametrize("item", [ONE_TEXT, MESSAGES], ids=["one text", "messages"])
def test_both_layouts_hold_the_same_step(item: dict[str, object]) -> None:
    assert read_step(item) == STEP


def test_a_first_step_has_no_past() -> None:
    assert read_step(SINGLE) == Step("Buy the mug", (), "<html> shop </html>", FIRST)


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        ({}, "no reply at the end"),
        ({"conversations": MESSAGES["conversations"][:-1]}, "no reply at the end"),
        ({"conversations": [{"from": "human", "value": "Round 0\n\nx"}, {"from": "gpt", "value": " "}]}, "empty reply"),
        ({"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": FIRST}]}, "no task"),
        ({"conversations": [{"from": "human", "value": "Task Instruction: x\n\nRound 0\n\n"},
                            {"from": "gpt", "value": FIRST}]}, "no page"),
    ],
)  # fmt: skip
def test_what_is_no_step_says_why(item: dict[str, object], cause: str) -> None:
    with pytest.raises(UnreadableError, match=cause):
        read_step(item)


@pytest.mark.parametrize("thinking", [False, True])
async def test_an_imported_step_reads_as_an_episode_of_ours(thinking: bool) -> None:
    left_out: Counter[str] = Counter()
    found = [made async for made in demonstrations([ONE_TEXT, {}, SINGLE], Bytes(), left_out, thinking=thinking)]
    assert left_out == {"no reply at the end": 1}
    turn = found[0].turns[0]
    prompt = bytes(turn.prompt_token_ids).decode()
    assert prompt.startswith(system_text("webarena", thinking=thinking))
    layout = LAYOUTS["webarena"]
    assert layout.first.format(instruction="Buy the mug", round=0, page=layout.stand_in) in prompt
    assert prompt.endswith(layout.later.format(round=1, page="<html> mug </html>"))
    assert FIRST in prompt
    assert SECOND in bytes(turn.reply_token_ids).decode()
    assert found[1].turns[0].action_text == FIRST
    assert all(made.reward == 1.0 for made in found)
