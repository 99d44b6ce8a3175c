"""Every expert of the arena does what it is asked, and what another instantiation asks for is judged a failure.

Env and evaluator are real; an expert has the instruction and the observations, like any agent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2, probe_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2, evaluator_pb2_grpc
from webagent_rollout.experts import EXPERTS, ExpertLost
from webagent_rollout.testing import Process
from webagent_runtime.client import open_channel

SECONDS = 60.0
TURNS = 30
AT_ONCE = 8
# The instantiations of a world that are for tests; those of one world are told apart by the last digit.
TEST_SEEDS = range(10)
ENOUGH = 0.98
TASKS = sorted(task for task in EXPERTS if task.startswith("arena/"))
# One task for each kind of rule; the last one goes from tab to tab.
QUICK = ["arena/shop-price", "arena/map-nearest", "arena/across-price-cart"]


@dataclass
class Session:
    """One session of a task, played by the test."""

    address: str
    task: str
    session_id: str
    opened: env_pb2.CreateSessionResponse
    env: Any
    probe: Any
    steps: int = 0

    async def rule(self) -> str:
        request = probe_pb2.GetTaskRuleRequest(session_id=self.session_id)
        return str((await self.probe.GetTaskRule(request, timeout=SECONDS)).rule.webarena.eval_json)

    async def follow(self, instruction: str) -> str | None:
        """Has the expert do what an instruction says, and gives its answer; None where it is at a loss."""
        past: list[str] = []
        page = self.opened.observation.text
        while len(past) < TURNS:
            try:
                past.append(EXPERTS[self.task](instruction, page, past))
            except ExpertLost:
                return None
            request = env_pb2.StepRequest(session_id=self.session_id, step_index=self.steps, action_text=past[-1])
            step = await self.env.Step(request, timeout=SECONDS)
            self.steps += 1
            page = step.observation.text
            if step.terminated:
                return str(step.result.action.exit.message)
        return None


@asynccontextmanager
async def session_of(address: str, task: str, seed: int) -> AsyncIterator[Session]:
    async with open_channel(address) as channel:
        env, probe = env_pb2_grpc.EnvironmentServiceStub(channel), probe_pb2_grpc.ProbeServiceStub(channel)
        session_id = f"arena-{uuid.uuid4().hex}"
        request = env_pb2.CreateSessionRequest(
            session_id=session_id,
            task=env_pb2.TaskRef(suite="arena", task_id=task.removeprefix("arena/")),
            seed=seed,
            options=env_pb2.SessionOptions(omit_attributes=["data-bbox", "type"]),
        )
        opened = await env.CreateSession(request, timeout=SECONDS)
        try:
            yield Session(address, task, session_id, opened, env, probe)
        finally:
            await env.CloseSession(env_pb2.CloseSessionRequest(session_id=session_id), timeout=SECONDS)


@dataclass(frozen=True)
class Played:
    """What came of one episode."""

    solved: bool
    steps: int
    instruction: str
    rule: str


class Judge:
    """Plays and judges; env and evaluator are services of their own."""

    def __init__(self, env: str, evaluator: str) -> None:
        self.env = env
        self._evaluator = evaluator
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def plays(self, task: str, seed: int, instruction: str = "") -> Played:
        """The expert does what the task says, or what it is told instead."""
        async with self._at_once, session_of(self.env, task, seed) as session:
            answer = await session.follow(instruction or session.opened.instruction)
            solved = await self._judge(session, answer)
            return Played(solved, session.steps, session.opened.instruction, await session.rule())

    async def does_nothing(self, task: str, seed: int) -> bool:
        """Whether ending the episode at once was judged a success."""
        async with self._at_once, session_of(self.env, task, seed) as session:
            return await self._judge(session, "done")

    async def _judge(self, session: Session, answer: str | None) -> bool:
        async with open_channel(self._evaluator) as channel:
            request = evaluator_pb2.EvaluateRequest(
                session_address=session.address, session_id=session.session_id, answer=answer
            )
            stub = evaluator_pb2_grpc.EvaluatorServiceStub(channel)
            verdict = (await stub.Evaluate(request, timeout=SECONDS)).verdict
        assert verdict.outcome != evaluator_pb2.OUTCOME_INVALID, verdict.reason
        return bool(verdict.outcome == evaluator_pb2.OUTCOME_SUCCESS)


@pytest.fixture
def judge(env: Process, evaluator: Process) -> Judge:
    return Judge(env.address, evaluator.address)


async def replay(judge: Judge, task: str, seeds: range) -> list[Played]:
    """Plays seeds of one world right; does each wrong in two ways, neither of which may be judged a success."""
    right = await asyncio.gather(*(judge.plays(task, seed) for seed in seeds))
    wrong = []
    for seed, own in zip(seeds, right, strict=True):
        # What another instantiation of this very world asks for, where it is judged by another rule.
        other = next(each for each in (*right[seed % 10 :], *right) if each.rule != own.rule)
        wrong.append(judge.plays(task, seed, other.instruction))
    did = await asyncio.gather(*wrong)
    assert [(task, seed) for seed, played in zip(seeds, did, strict=True) if played.solved] == []
    assert not any(await asyncio.gather(*(judge.does_nothing(task, seed) for seed in seeds)))
    return right


@pytest.mark.parametrize("task", QUICK)
async def test_what_was_asked_succeeds_and_what_another_instantiation_asks_fails(judge: Judge, task: str) -> None:
    assert all(played.solved for played in await replay(judge, task, range(2)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("task", TASKS)
async def test_the_expert_of_a_template_solves_the_tests_of_a_world_and_no_wrong_way_does(
    judge: Judge, task: str
) -> None:
    right = await replay(judge, task, TEST_SEEDS)
    assert sum(played.solved for played in right) >= ENOUGH * len(TEST_SEEDS)


async def test_every_template_has_an_expert(env: Process) -> None:
    async with open_channel(env.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        listed = await stub.ListTasks(env_pb2.ListTasksRequest(suite="arena"), timeout=SECONDS)
    assert sorted(f"arena/{each.task.task_id}" for each in listed.tasks) == TASKS
