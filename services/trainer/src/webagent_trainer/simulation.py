"""The loop without browsers and without a model, in time that is counted and not waited for.

    real       queue, exchange, intake, ledger, archive, groups, sampler, versions on disk, rl.py
    simulated  how long an episode plays, how long a step computes, and the clock of both

Time stands still while any part has work and jumps to the next sleeper's end once all of them wait, so what is measured
is the schedule: it is the same on a fast machine and on a busy one.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime.config import PayloadConfig, QueueConfig, validate
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Delivery, Queue

from webagent_trainer.batches import LearningRow
from webagent_trainer.board import Board
from webagent_trainer.books import Books, open_books
from webagent_trainer.canary import Continuation
from webagent_trainer.chance import seeded
from webagent_trainer.clock import Clock
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig, RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.exchange import Exchange
from webagent_trainer.groups import Assembly
from webagent_trainer.intake import Intake
from webagent_trainer.learner import SUMS, Objective, StepReport
from webagent_trainer.phases import train
from webagent_trainer.testing import make_turn

_VOCABULARY = 64
_Z99 = 2.3263
_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Workload:
    """What is simulated."""

    max_staleness: int
    iterations: int = 8
    groups: int = 8
    group_size: int = 8
    slots: int = 64
    # Turns of an episode are log-normal.
    median_turns: float = 5.0
    percentile_99_turns: float = 40.0
    turn_seconds: float = 1.0
    train_seconds: float = 0.0
    seed: int = 0

    def turns(self, chance: Random) -> int:
        """The turns of one episode."""
        spread = math.log(self.percentile_99_turns / self.median_turns) / _Z99
        return max(1, round(chance.lognormvariate(math.log(self.median_turns), spread)))

    def mean_rollout_seconds(self) -> float:
        """How long one iteration's episodes take by themselves, with all slots free at its beginning."""
        chance = seeded("mean rollout", self.seed)
        return fmean(self._rollout(chance) for _ in range(_SAMPLES))

    def _rollout(self, chance: Random) -> float:
        free = [0.0] * self.slots
        for _ in range(self.groups * self.group_size):
            heapq.heapreplace(free, free[0] + self.turns(chance) * self.turn_seconds)
        return max(free)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a simulated run."""

    counts: dict[str, int]
    seconds: float  # simulated
    wall_seconds: float

    @property
    def useful_per_second(self) -> float:
        """Episodes that were learned from or, without variance, could not teach: neither stale nor surplus."""
        return (self.counts["trained"] + self.counts["no_variance"]) / self.seconds


@dataclass
class _Traffic:
    """Episodes by the messages that are under way for them, however often delivered; time stands still meanwhile."""

    dispatched: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)


class _Assembly(Assembly):
    """Knows when the training thread waits for groups: then it is not at work."""

    def __init__(self, bell: threading.Condition, clock: Clock, traffic: _Traffic) -> None:
        super().__init__(bell, window=64)
        self._clock = clock
        self._traffic = traffic
        self._waiting = False

    def settle(self, episode_id: str, outcome: str, trajectory: trajectory_pb2.Trajectory | None) -> None:
        with self._bell:
            super().settle(episode_id, outcome, trajectory)
            if self._waiting:
                self._waiting = False
                self._clock.begin()
            self._traffic.settled.add(episode_id)
            self._clock.check()

    def wait(self, timeout: float) -> bool:
        with self._bell:
            if self.complete():
                return True
            self._waiting = True
            self._clock.end()
            news = self._bell.wait(timeout)
            if self._waiting:
                self._waiting = False
                self._clock.begin()
            return news


class _Exchange(Exchange):
    """Counts what it dispatches; versions are served as soon as they are announced."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: Queue, traffic: _Traffic) -> None:
        super().__init__(loop, queue)
        self._traffic = traffic
        self.served = 0

    def dispatch(self, requests: Sequence[trajectory_pb2.RolloutRequest]) -> None:
        self._traffic.dispatched.update(request.episode.episode_id for request in requests)
        super().dispatch(requests)

    def announce(self, version: policy_pb2.PolicyVersion) -> None:
        super().announce(version)
        self.served = version.version


class _Crew(Crew):
    """No ranks and no model: a step is a while of the clock."""

    def __init__(self, clock: Clock, train_seconds: float) -> None:
        # Without the process group that the real one needs.
        self._clock = clock
        self._train_seconds = train_seconds

    def begin(self, config: DeepSpeedConfig) -> None:
        pass

    def open(self, model: str, reference: str | None, optimizer: OptimizerConfig, temperature: float) -> None:
        pass

    def close(self) -> None:
        pass

    def save(self, directory: str) -> None:
        Path(directory).mkdir()

    def learn(self, rows: Sequence[LearningRow], objective: Objective, learning_rate: float) -> StepReport:
        self._clock.sleep(self._train_seconds)
        tokens = float(sum(len(row.reply) for row in rows))
        return StepReport(dict.fromkeys(SUMS, 0.0) | {"tokens": tokens, "entropy_tokens": tokens}, 1.0, 0.0)

    def weights(self) -> dict[str, Tensor]:
        return {"weight": torch.zeros(1)}

    def continuations(
        self, prompts: Sequence[Sequence[int]], wanted: int, length: int, margin: float
    ) -> list[Continuation]:
        return [Continuation((1,), (2,), (-0.5,))]


class _Player:
    """Slots that play requests in simulated time."""

    def __init__(self, queue: Queue, exchange: _Exchange, work: Workload, clock: Clock, traffic: _Traffic) -> None:
        self._queue = queue
        self._exchange = exchange
        self._work = work
        self._clock = clock
        self._traffic = traffic
        self._playing = 0
        self._free = asyncio.Semaphore(work.slots)

    def still(self) -> bool:
        """Whether nothing is under way that a slot or the trainer will react to at once."""
        traffic = self._traffic
        hungry = self._playing < self._work.slots and len(traffic.taken) < len(traffic.dispatched)
        return not hungry and len(traffic.settled) == len(traffic.published)

    async def serve(self) -> None:
        """Says that the newest version is served."""
        async for version in self._queue.watch_versions():
            status = policy_pb2.ServingStatus(replica="simulated", version=version.version)
            status.updated_at.GetCurrentTime()
            await self._queue.put_serving(status)

    async def play(self) -> None:
        """Plays one request in each slot."""
        requests = self._queue.requests()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._free.acquire()
                delivery = None
                while delivery is None:
                    delivery = await requests.next(5.0)
                self._clock.begin()
                self._playing += 1
                self._traffic.taken.add(delivery.message.episode.episode_id)
                tasks.create_task(self._episode(delivery, len(self._traffic.taken)))

    async def _episode(self, delivery: Delivery[trajectory_pb2.RolloutRequest], number: int) -> None:
        request = delivery.message
        version = self._exchange.served
        chance = seeded("episode", self._work.seed, number)
        turns = self._work.turns(chance)
        async with delivery.held():
            await self._clock.sleep_async(turns * self._work.turn_seconds)
            self._traffic.published.add(request.episode.episode_id)
            await self._queue.publish_trajectory(
                trajectory_pb2.Trajectory(
                    run_id=request.run_id,
                    group_id=request.group_id,
                    episode=request.episode,
                    status=trajectory_pb2.EPISODE_STATUS_SCORED,
                    reward=float(chance.random() < 0.5),
                    turns=[make_turn([1, 2], [3], [-0.5], version)] * turns,
                )
            )
            await delivery.ack()
        self._playing -= 1
        self._free.release()
        self._clock.end()


async def simulate(work: Workload, *, url: str, directory: Path) -> Outcome:
    """Runs the loop on the queue at `url`; the run's files go into `directory`, whose name is the run's id."""
    began = time.monotonic()
    config = _run_config(work, directory)
    queue = await Queue.connect(QueueConfig(url=url), name="simulation")
    await queue.ensure()
    await queue.ensure_run(directory.name)
    clock, traffic = Clock(), _Traffic()
    board = Board(directory.name)
    opened = open_books(config, board)
    assert opened is not None
    books = Books(opened.ledger, opened.archive, _Assembly(board.bell, clock, traffic))
    exchange = _Exchange(asyncio.get_running_loop(), queue, traffic)
    player = _Player(queue, exchange, work, clock, traffic)
    clock.still = player.still
    stop = asyncio.Event()
    intake = Intake(queue, PayloadStore(PayloadConfig(uri=directory.as_uri())), directory.name, books=books)
    helpers = [asyncio.create_task(part) for part in (intake.run(stop), player.serve(), player.play())]
    clock.begin()
    crew = _Crew(clock, work.train_seconds)
    training = asyncio.create_task(
        asyncio.to_thread(train, config, crew=crew, exchange=exchange, board=board, books=books)
    )
    try:
        await asyncio.wait({training, *helpers}, return_when=asyncio.FIRST_COMPLETED)
        for helper in helpers:
            if helper.done():
                helper.result()
        await training
        seconds = clock.now
    finally:
        board.ask_stop()
        stop.set()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(training, *helpers, return_exceptions=True)
        await queue.drop_run(directory.name)
        await queue.close()
    return Outcome(books.ledger.counts(), seconds, time.monotonic() - began)


def _run_config(work: Workload, directory: Path) -> RunConfig:
    model = directory / "no-model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"vocab_size": _VOCABULARY}))
    values: dict[str, Any] = {
        "run_directory": directory,
        "model": model,
        "seed": work.seed,
        "checkpoints": {"every": work.iterations},
        "rl": {
            "suite": "simulated",
            "tasks": ["a", "b"],
            "seeds": {"first": 0, "count": 10_000},
            "iterations": work.iterations,
            "groups": work.groups,
            "group_size": work.group_size,
            "max_staleness": work.max_staleness,
            "agent": {"max_turns": 100},
            "kl_coefficient": 0.0,
            # Real time, in which nothing may expire: only simulated time is measured.
            "deadline_seconds": 3600,
        },
    }
    return validate(RunConfig, values, source="simulation")
