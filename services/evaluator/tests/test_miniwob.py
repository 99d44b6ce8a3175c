"""MiniWoB episodes in real Chromium are judged by the page's own raw reward, through env's probe."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest
from service_process import StartService
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.client import open_channel

TIMEOUT = 60
Play = Callable[[str, str], Awaitable[env_pb2.CreateSessionResponse]]


@pytest.fixture(scope="module")
def env(start_service: StartService, tmp_path_factory: pytest.TempPathFactory) -> str:
    return start_service("env", {"state_directory": tmp_path_factory.mktemp("state")}).address


@pytest.fixture
async def play(env: str) -> AsyncIterator[Play]:
    """Opens a session on a task and clicks the first element whose label matches; "" clicks nothing."""
    async with open_channel(env) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        opened: list[str] = []

        async def run(task_id: str, label: str) -> env_pb2.CreateSessionResponse:
            task = env_pb2.TaskRef(suite="miniwob", task_id=task_id)
            request = env_pb2.CreateSessionRequest(session_id=f"test-{uuid4()}", task=task, seed=3)
            created = await stub.CreateSession(request, timeout=TIMEOUT)
            opened.append(created.session.session_id)
            if label:
                button = re.search(rf'<button id="(\d+)"[^>]*>{label}</button>', created.observation.text)
                assert button, created.observation.text
                action = env_pb2.Action(click=env_pb2.Action.Click(element=button[1]))
                step = env_pb2.StepRequest(session_id=opened[-1], action=action)
                assert (await stub.Step(step, timeout=TIMEOUT)).terminated
            return created

        yield run
        for session_id in opened:
            await stub.CloseSession(env_pb2.CloseSessionRequest(session_id=session_id), timeout=TIMEOUT)


async def judge(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, session: env_pb2.SessionInfo
) -> tuple[pb.Verdict, dict[str, object]]:
    request = pb.EvaluateRequest(session_address=session.address, session_id=session.session_id)
    verdict = (await evaluator.Evaluate(request, timeout=TIMEOUT)).verdict
    return verdict, json.loads(verdict.checks[0].evidence_json)["value"] if verdict.checks else {}


async def test_the_right_click_succeeds_with_its_rule_and_evidence(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, play: Play
) -> None:
    created = await play("click-button", "no")
    assert created.instruction == 'Click on the "no" button.'
    verdict, reward = await judge(evaluator, created.session)
    assert (verdict.outcome, verdict.reason, reward) == (pb.OUTCOME_SUCCESS, "", {"done": True, "reward": 1.0})
    assert (verdict.rule.task, verdict.rule.seed) == (created.session.task, 3)
    assert not verdict.HasField("answer")
    again = await evaluator.Rescore(pb.RescoreRequest(verdict=verdict), timeout=TIMEOUT)
    assert (again.verdict.outcome, again.changed) == (pb.OUTCOME_SUCCESS, False)


async def test_the_wrong_click_fails(evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, play: Play) -> None:
    verdict, reward = await judge(evaluator, (await play("click-button", "Okay")).session)
    assert (verdict.outcome, reward) == (pb.OUTCOME_FAILURE, {"done": True, "reward": -1.0})


async def test_an_episode_that_is_not_done_fails(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, play: Play
) -> None:
    verdict, _ = await judge(evaluator, (await play("click-button", "")).session)
    assert verdict.outcome == pb.OUTCOME_FAILURE
    assert verdict.checks[0].explanation == "The page says that the task is not done."


async def test_a_small_reward_for_a_part_is_no_success(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, play: Play
) -> None:
    verdict, reward = await judge(evaluator, (await play("click-checkboxes-soft", "Submit")).session)
    assert 0 < float(str(reward["reward"])) < 1
    assert verdict.outcome == pb.OUTCOME_FAILURE


async def test_a_session_that_is_gone_makes_the_verdict_invalid(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, env: str
) -> None:
    request = pb.EvaluateRequest(session_address=env, session_id="never-opened")
    verdict = (await evaluator.Evaluate(request, timeout=TIMEOUT)).verdict
    assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, "SESSION_NOT_FOUND")
    assert not verdict.HasField("rule")
