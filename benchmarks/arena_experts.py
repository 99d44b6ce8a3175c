"""Success and speed of the arena's scripted experts over its test split, with the time by part.

    python benchmarks/arena_experts.py [--seeds 10] [--sessions 8] [--tasks shop-price,map-phone]

Env and evaluator run as services of their own and everything goes over gRPC, as in training; only the policy is a
script. The parts are what sessions spent their time on, so at several sessions they add up to more than the wall time;
`act`, `settle` and `observe` are the env service's own figures for a step, and `step_rest` is what is left of it: gRPC
and waiting for a processor.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2, evaluator_pb2_grpc
from webagent_env.arena.catalogue import make_arena
from webagent_rollout.experts import EXPERTS, ExpertLost
from webagent_rollout.testing import env_process, evaluator_process
from webagent_runtime.client import open_channel

TIMEOUT = 120.0
TURNS = 30


@dataclass
class Tally:
    """What was measured so far."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: list[int] = field(default_factory=list)
    solved: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    sites: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Counts the time of a part."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begun


class Bench:
    """Both services and what they are asked."""

    def __init__(self, address: str, env: object, evaluator: object) -> None:
        self.address = address
        self.env = env_pb2_grpc.EnvironmentServiceStub(env)
        self.evaluator = evaluator_pb2_grpc.EvaluatorServiceStub(evaluator)
        self.tally = Tally()

    async def episode(self, task: str, site: str, seed: int) -> None:
        """Plays and judges one."""
        tally, session = self.tally, f"bench-{uuid.uuid4().hex}"
        request = env_pb2.CreateSessionRequest(
            session_id=session,
            task=env_pb2.TaskRef(suite="arena", task_id=task),
            seed=seed,
            options=env_pb2.SessionOptions(omit_attributes=["data-bbox", "type"]),
        )
        with tally.part("open"):
            opened = await self.env.CreateSession(request, timeout=TIMEOUT)
        answer = await self._play(task, session, opened)
        with tally.part("judge"):
            asked = evaluator_pb2.EvaluateRequest(session_address=self.address, session_id=session, answer=answer)
            verdict = (await self.evaluator.Evaluate(asked, timeout=TIMEOUT)).verdict
        with tally.part("close"):
            await self.env.CloseSession(env_pb2.CloseSessionRequest(session_id=session), timeout=TIMEOUT)
        for groups, name in ((tally.solved, task), (tally.sites, site)):
            groups[name].append(verdict.outcome == evaluator_pb2.OUTCOME_SUCCESS)

    async def _play(self, task: str, session: str, opened: env_pb2.CreateSessionResponse) -> str | None:
        tally, page, answer = self.tally, opened.observation.text, None
        past: list[str] = []
        while len(past) < TURNS:
            try:
                with tally.part("expert"):
                    past.append(EXPERTS[f"arena/{task}"](opened.instruction, page, past))
            except ExpertLost:
                break
            request = env_pb2.StepRequest(session_id=session, step_index=len(past) - 1, action_text=past[-1])
            begun = time.perf_counter()
            step = await self.env.Step(request, timeout=TIMEOUT)
            rest = time.perf_counter() - begun
            for name in ("act", "settle", "observe"):
                spent = getattr(step.timings, name).ToTimedelta().total_seconds()
                tally.seconds[name] += spent
                rest -= spent
            tally.seconds["step_rest"] += rest
            page = step.observation.text
            if step.terminated:
                answer = step.result.action.exit.message
                break
        tally.steps.append(len(past))
        return answer


async def measure(env: str, evaluator: str, seeds: int, sessions: int, only: set[str]) -> dict[str, object]:
    """Plays the test split, so many sessions at once."""
    async with open_channel(env) as env_channel, open_channel(evaluator) as evaluator_channel:
        bench = Bench(env, env_channel, evaluator_channel)
        listed = await bench.env.ListTasks(env_pb2.ListTasksRequest(suite="arena"), timeout=TIMEOUT)
        tasks = [(one.task.task_id, one.site) for one in listed.tasks if not only or one.task.task_id in only]
        at_once = asyncio.Semaphore(sessions)

        async def play(task: str, site: str, seed: int) -> None:
            async with at_once:
                await bench.episode(task, site, seed)

        begun = time.perf_counter()
        await asyncio.gather(*(play(task, site, seed) for seed in range(seeds) for task, site in tasks))
        return report(bench.tally, time.perf_counter() - begun, sessions)


def world_times(worlds: int = 20) -> dict[str, float]:
    """What a session's data costs, in milliseconds: the first world of a number, and each further one."""
    arena = make_arena()
    first, again = [], []
    for number in range(10_000, 10_000 + worlds):
        for times in (first, again):
            begun = time.perf_counter()
            world = arena.worlds.make(number)
            for store in arena.worlds.stores:
                world.data(store)
            times.append(1000 * (time.perf_counter() - begun))
            world.close()
    return {"first_p50": round(statistics.median(first), 2), "again_p50": round(statistics.median(again), 2)}


def report(tally: Tally, wall: float, sessions: int) -> dict[str, object]:
    """The figures."""
    episodes, steps = len(tally.steps), sum(tally.steps)
    return {
        "cores": os.cpu_count() or 0,
        "load_average": round(os.getloadavg()[0], 1),
        "sessions": sessions,
        "templates": len(tally.solved),
        "episodes": episodes,
        "steps": steps,
        "wall_seconds": round(wall, 1),
        "steps_per_second": round(steps / wall, 2),
        "success": round(statistics.fmean(one for each in tally.solved.values() for one in each), 4),
        "success_by_site": {site: round(statistics.fmean(each), 4) for site, each in sorted(tally.sites.items())},
        "not_always_solved": {
            task: round(statistics.fmean(each), 2) for task, each in tally.solved.items() if not all(each)
        },
        "median_steps": statistics.median(tally.steps),
        "share_of_10_steps_or_more": round(sum(each >= 10 for each in tally.steps) / episodes, 3),
        "world_ms": world_times(),
        "ms_per_episode": {
            name: round(1000 * tally.seconds[name] / episodes, 1) for name in ("open", "judge", "close")
        },
        "ms_per_step": {
            name: round(1000 * tally.seconds[name] / steps, 1)
            for name in ("expert", "act", "settle", "observe", "step_rest")
        },
    }


def main() -> None:
    """Starts the services, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tasks", default="")
    options = parser.parse_args()
    only = {each for each in options.tasks.split(",") if each}
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        env, evaluator = env_process(Path(directory)), evaluator_process()
        try:
            env.start()
            evaluator.start()
            measured = measure(env.address, evaluator.address, options.seeds, options.sessions, only)
            print(json.dumps(asyncio.run(measured), indent=2))
        finally:
            evaluator.stop()
            env.stop()


if __name__ == "__main__":
    main()
