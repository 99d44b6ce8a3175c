"""The reward model learns the evaluator's verdicts, and its own replace them on stored episodes."""

import pytest
from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_FAILURE, OUTCOME_INVALID, OUTCOME_SUCCESS, Outcome
from webagent.inference.v1.inference_pb2 import RenderRequest, RenderResponse, ScoreRequest, ScoreResponse
from webagent.trajectory.v1.trajectory_pb2 import EPISODE_STATUS_INVALID, EPISODE_STATUS_SCORED, PayloadRef, Trajectory
from webagent_rollout.reward_model import judge, rows


class Model:
    """Bytes as tokens; finds YES likely where the last page says thanks."""

    async def render(self, request: RenderRequest) -> RenderResponse:
        prompt = "|".join(message.text for message in request.messages)
        return RenderResponse(prompt_token_ids=prompt.encode(), reply_token_ids=request.reply_text.encode())

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        yes = bytes(request.token_ids) == b"YES"
        likely = yes == (b"thanks" in bytes(request.prompt_token_ids))
        return ScoreResponse(logprobs=[-0.1 if likely else -2.0] * len(request.token_ids))


class Kept:
    async def get(self, ref: PayloadRef) -> bytes:
        return b"thanks, from far away"


def episode(page: str, outcome: Outcome.ValueType) -> Trajectory:
    made = Trajectory(instruction="buy it", reward=float(outcome == OUTCOME_SUCCESS))
    made.verdict.outcome = outcome
    made.turns.add(
        action_text="do(1)", observation_text="shop", prompt_token_ids=[1], reply_token_ids=[2], logprobs=[-1]
    )
    made.turns.add(action_text="exit()", observation_text=page)
    if not page:
        made.turns[-1].observation_ref.uri = "file:///page"
    return made


EPISODES = [episode("thanks", OUTCOME_FAILURE), episode("sorry", OUTCOME_SUCCESS), episode("", OUTCOME_INVALID)]


async def test_each_verdict_becomes_one_word_to_learn() -> None:
    made = [one async for one in rows(EPISODES, Model(), Kept())]
    assert [one.turns[0].reply_text for one in made] == ["NO", "YES"]
    prompt = bytes(made[0].turns[0].prompt_token_ids).decode()
    for part in ("buy it", "1. do(1)\n2. exit()", "thanks"):
        assert part in prompt
    assert "shop" not in prompt
    assert all(one.verdict.outcome == OUTCOME_SUCCESS for one in made)


async def test_its_verdicts_replace_the_others_and_the_tokens_stay() -> None:
    made = [one async for one in judge(EPISODES, Model(), Kept())]
    assert [one.reward for one in made] == [1.0, 0.0]
    assert [one.verdict.outcome for one in made] == [OUTCOME_SUCCESS, OUTCOME_FAILURE]
    assert made[0].turns == EPISODES[0].turns
    assert made[0].verdict.checks[0].kind == "reward-model"


async def test_an_episode_of_a_task_without_a_rule_is_judged_and_one_that_broke_is_not() -> None:
    ruleless, broken = episode("thanks", OUTCOME_INVALID), episode("thanks", OUTCOME_INVALID)
    ruleless.verdict.reason, broken.verdict.reason = "RULE_UNSUPPORTED", "BROWSER_CRASHED"
    ruleless.status, ruleless.reason = EPISODE_STATUS_INVALID, "RULE_UNSUPPORTED"
    (made,) = [one async for one in judge([broken, ruleless], Model(), Kept())]
    assert (made.status, made.reason, made.reward) == (EPISODE_STATUS_SCORED, "", 1.0)
    assert [one async for one in rows([broken, ruleless], Model(), Kept())] == []


@pytest.mark.parametrize("outcome", [OUTCOME_SUCCESS, OUTCOME_FAILURE])
async def test_a_long_page_is_fetched(outcome: Outcome.ValueType) -> None:
    (made,) = [one async for one in judge([episode("", outcome)], Model(), Kept())]
    assert made.reward == 1.0
