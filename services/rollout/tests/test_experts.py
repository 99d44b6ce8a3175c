"""Every expert solves its task on the real page, which says so itself."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2, probe_pb2_grpc
from webagent_rollout.experts import EXPERTS, ExpertLost
from webagent_rollout.testing import Process
from webagent_runtime.client import open_channel

SECONDS = 60.0
TURNS = 25
AT_ONCE = 12
# One task for each script; tasks that share one come under the slow test.
MINIWOB = {task: expert for task, expert in EXPERTS.items() if task.startswith("miniwob/")}
DISTINCT = sorted({expert.script: task for task, expert in MINIWOB.items()}.values())

SEEDS = range(100, 130)
ENOUGH = 28
# Two buttons at random places: on every eighth page one covers the middle of the other, which then has no number.
COVERED = {"miniwob/click-button-sequence", "miniwob/click-test-2", "miniwob/click-test-transfer"}
ENOUGH_WHERE_COVERED = 24


async def is_solved(address: str, task: str, seed: int, at_once: asyncio.Semaphore) -> bool:
    async with at_once, open_channel(address) as channel:
        env, probe = env_pb2_grpc.EnvironmentServiceStub(channel), probe_pb2_grpc.ProbeServiceStub(channel)
        suite, task_id = task.split("/")
        session = f"expert-{uuid.uuid4().hex}"
        opened = await env.CreateSession(
            env_pb2.CreateSessionRequest(
                session_id=session,
                task=env_pb2.TaskRef(suite=suite, task_id=task_id),
                seed=seed,
                options=env_pb2.SessionOptions(omit_attributes=["data-bbox"]),
            ),
            timeout=SECONDS,
        )
        try:
            past: list[str] = []
            page, over = opened.observation.text, False
            while not over and len(past) < TURNS:
                past.append(EXPERTS[task](opened.instruction, page, past))
                request = env_pb2.StepRequest(session_id=session, step_index=len(past) - 1, action_text=past[-1])
                step = await env.Step(request, timeout=SECONDS)
                page, over = step.observation.text, step.terminated
            rule = (await probe.GetTaskRule(probe_pb2.GetTaskRuleRequest(session_id=session), timeout=SECONDS)).rule
            query = probe_pb2.ProbeRequest(session_id=session, javascript=rule.native.reward_javascript)
            reward = json.loads((await probe.Probe(query, timeout=SECONDS)).value_json)
            return bool(reward["done"]) and reward["reward"] >= rule.native.success_threshold
        except ExpertLost:
            return False
        finally:
            await env.CloseSession(env_pb2.CloseSessionRequest(session_id=session), timeout=SECONDS)


async def solved(address: str, task: str, seeds: range) -> int:
    at_once = asyncio.Semaphore(AT_ONCE)
    return sum(await asyncio.gather(*(is_solved(address, task, seed, at_once) for seed in seeds)))


@pytest.mark.timeout(240)
async def test_every_script_solves_its_task(env: Process) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)
    outcomes = await asyncio.gather(*(is_solved(env.address, task, 1, at_once) for task in DISTINCT))

    assert [task for task, outcome in zip(DISTINCT, outcomes, strict=True) if not outcome] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("task", MINIWOB)
async def test_an_expert_solves_nearly_every_seed(env: Process, task: str) -> None:
    assert await solved(env.address, task, SEEDS) >= (ENOUGH_WHERE_COVERED if task in COVERED else ENOUGH)


def test_there_are_experts_enough_for_the_quick_and_the_long_run() -> None:
    assert len(MINIWOB) >= 20
