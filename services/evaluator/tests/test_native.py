"""Native rules decide by the page's reward, and anything else than a reward is a fault, never a failure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent_evaluator.native import NativeRule, check_native, collect_native
from webagent_evaluator.verdicts import NoVerdictError

RULE = NativeRule("reward()", 0.8)


def evidence(value: object) -> str:
    return json.dumps({"value": value, "url": "http://site.test/"})


@given(st.booleans(), st.floats(-1, 1), st.floats(-1, 1))
def test_success_is_done_with_at_least_the_threshold(done: bool, reward: float, threshold: float) -> None:
    check = check_native(NativeRule("reward()", threshold), evidence({"done": done, "reward": reward}))
    assert check.passed == (done and reward >= threshold)


def test_a_small_positive_reward_below_the_threshold_fails_and_says_so() -> None:
    check = check_native(RULE, evidence({"done": True, "reward": 0.2}))
    assert not check.passed
    assert check.explanation == "The page's reward 0.2 is below the threshold 0.8."


@pytest.mark.parametrize(
    "value",
    [None, 1, [], {}, {"done": 1, "reward": 1}, {"done": True, "reward": True}, {"done": True, "reward": None},
     {"done": True, "reward": float("nan")}, {"done": True, "reward": float("inf")}, {"done": True, "reward": "1"},
     {"done": True, "reward": 10**400}],
)  # fmt: skip
def test_what_is_no_reward_is_a_fault(value: object) -> None:
    with pytest.raises(NoVerdictError) as fault:
        check_native(RULE, evidence(value))
    assert fault.value.reason == "EVIDENCE_MALFORMED"


@given(st.text(max_size=50) | st.integers(1, 30_000).map(lambda depth: "[" * depth))
def test_evidence_that_is_no_reward_is_a_fault(text: str) -> None:
    with pytest.raises(NoVerdictError):
        check_native(RULE, text)


async def test_a_reward_of_endless_length_is_a_fault() -> None:
    async def read(_: str) -> tuple[str, str]:
        return json.dumps("x" * 100_000), "http://site.test/"

    with pytest.raises(NoVerdictError, match="longer than"):
        await collect_native(RULE, read)
