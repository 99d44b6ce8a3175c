"""What an iteration holds to when outcomes, ends and faults come at awkward moments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime.config import validate
from webagent_runtime.queue import Queue
from webagent_runtime.testing import NatsServer, nats_server
from webagent_trainer.board import Board
from webagent_trainer.books import Books, open_books
from webagent_trainer.config import RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.errors import RunFailedError, RunStoppedError
from webagent_trainer.exchange import Exchange
from webagent_trainer.ledger import Entry
from webagent_trainer.methods import method_of
from webagent_trainer.rl import Reinforcement
from webagent_trainer.run import Run
from webagent_trainer.testing import make_turn

SECONDS = 60.0


class Scene:
    """A run of which any part of the past can be made up, on a real queue, ledger, archive and learner."""

    def __init__(self, queue: Queue, crew: Crew, model: Path, directory: Path) -> None:
        self.queue, self.crew, self.model, self.directory = queue, crew, model, directory
        self.opened: list[Books] = []

    async def begin(self, **rl: Any) -> Reinforcement:
        """The phase of a trainer that has just started, from the newest checkpoint if there is one."""
        block = {"suite": "toy", "tasks": ["a"], "seeds": {"first": 0, "count": 10_000}, "iterations": 1, "groups": 1}
        block |= {"group_size": 2, "kl_coefficient": 0.0, "grace_seconds": 0.1, "sampling": {"max_tokens": 8}} | rl
        values = {"run_directory": self.directory, "model": self.model, "rl": block, "deepspeed": {"threads": 1}}
        config = validate(RunConfig, values, source="test")
        assert config.rl is not None
        self.board = Board(self.directory.name)
        books = open_books(config, self.board)
        assert books is not None
        self.books = books
        self.opened.append(books)
        self.run = Run(
            config, crew=self.crew, exchange=Exchange(asyncio.get_running_loop(), self.queue), board=self.board
        )
        phase = Reinforcement(self.run, config.rl, books, method_of(self.crew, config.rl, seed=0))
        optimizer = config.rl.optimizer

        def resume() -> None:
            self.crew.begin(config.deepspeed)
            checkpoint = self.run.resume()
            phase.restore(checkpoint.state["progress"] if checkpoint else {})
            self.run.open(checkpoint, optimizer, after=None, reference=False, temperature=1.0)

        await asyncio.to_thread(resume)
        return phase

    def enter(self, *names: str, iteration: int = 0, seconds: float = SECONDS) -> None:
        """Enters a group of these episodes."""
        deadline = time.time() + seconds
        self.books.ledger.enter(Entry(name, names[0], iteration, "toy", "a", 1, 0, deadline) for name in names)

    def score(self, name: str, reward: float = 1.0, version: int = 0) -> trajectory_pb2.Trajectory:
        """Archives an episode that a version played and enters its outcome."""
        trajectory = trajectory_pb2.Trajectory(
            run_id=self.run.run_id,
            status=trajectory_pb2.EPISODE_STATUS_SCORED,
            reward=reward,
            turns=[make_turn([1, 2], [3, 4], [-1.0, -1.0], version)],
        )
        trajectory.episode.episode_id = name
        offset = self.books.archive.append(trajectory)
        self.books.ledger.settle(name, "SCORED", reward=reward, archive_offset=offset)
        return trajectory

    async def stop_at_first_wait(self, phase: Reinforcement, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs the phase until it has nothing to do but to wait for groups, and has it end there."""

        def ask_stop(_timeout: float) -> bool:
            self.board.ask_stop()
            return True

        monkeypatch.setattr(self.books.assembly, "wait", ask_stop)
        with pytest.raises(RunStoppedError):
            await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)

    def counts(self, *names: str) -> Sequence[int]:
        """Of the ledger, by name."""
        counts = self.books.ledger.counts()
        return tuple(counts[name] for name in names)


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    """A queue that no other test's replicas have said anything to."""
    with nats_server() as server:
        yield server


@pytest.fixture
def scene(queue: Queue, crew: Crew, tiny_model: Path, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(queue, crew, tiny_model, tmp_path / f"{tmp_path.parent.name}-{tmp_path.name}")
    yield made
    for books in made.opened:
        books.ledger.close()


async def test_an_outcome_that_comes_while_a_run_is_taken_up_is_not_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin()
    scene.enter("early", "amid", seconds=600)
    scene.score("early")
    unfinished = scene.books.ledger.unfinished

    def read_just_before_the_outcome() -> list[Entry]:
        entries = unfinished()
        if any(entry.outcome is None for entry in entries):
            scene.books.assembly.settle("amid", "SCORED", scene.score("amid"))
        return entries

    monkeypatch.setattr(scene.books.ledger, "unfinished", read_just_before_the_outcome)
    async with asyncio.timeout(SECONDS):
        await asyncio.to_thread(phase.run)
    assert scene.counts("dispatched", "scored", "no_variance", "late") == (2, 2, 2, 0)


async def test_an_outcome_that_only_the_ledger_has_completes_its_group_at_the_deadline(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin()
    scene.enter("told", "untold", seconds=1)
    scene.score("told")
    dispatch = scene.run.exchange.dispatch

    def dispatch_just_before_the_outcome(requests: Sequence[trajectory_pb2.RolloutRequest]) -> None:
        dispatch(requests)
        scene.score("untold")

    monkeypatch.setattr(scene.run.exchange, "dispatch", dispatch_just_before_the_outcome)
    async with asyncio.timeout(SECONDS):
        await asyncio.to_thread(phase.run)
    assert scene.counts("dispatched", "scored", "no_variance") == (2, 2, 2)


async def test_an_iteration_of_which_nothing_was_ever_heard_ends_the_run(scene: Scene) -> None:
    phase = await scene.begin(iterations=3, deadline_seconds=1)
    with pytest.raises(RunFailedError, match="NOTHING_SCORED: none of the 2 episodes of iteration 1"):
        await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)
    assert scene.counts("dispatched", "expired") == (2, 2)


async def test_what_expired_while_the_trainer_was_away_is_played_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(groups=2)
    for name in "ab":
        scene.enter(f"{name}1", f"{name}2", seconds=-1)
    await scene.stop_at_first_wait(phase, monkeypatch)
    assert scene.counts("dispatched", "expired", "open") == (8, 4, 4)


async def test_what_was_played_by_versions_that_a_crash_cut_off_is_played_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(groups=2)
    scene.run.newest_version = 7
    for name, version in {"a": 7, "b": 0}.items():
        scene.enter(f"{name}1", f"{name}2")
        scene.score(f"{name}1", 1.0, version)
        scene.score(f"{name}2", 0.0, version)
    await scene.stop_at_first_wait(phase, monkeypatch)
    assert scene.counts("dispatched", "stale", "unused", "open") == (6, 2, 2, 2)


async def test_an_iteration_of_another_policys_episodes_ends_the_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(iterations=2)
    dispatch = scene.run.exchange.dispatch

    def dispatch_to_a_stranger(requests: Sequence[trajectory_pb2.RolloutRequest]) -> None:
        dispatch(requests)
        for name in (request.episode.episode_id for request in requests):
            # No version that this run ever published.
            scene.books.assembly.settle(name, "SCORED", scene.score(name, version=99))

    monkeypatch.setattr(scene.run.exchange, "dispatch", dispatch_to_a_stranger)
    with pytest.raises(RunFailedError, match="ALL_REFUSED: all 2 scored episodes of iteration 1"):
        await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)
    assert scene.counts("dispatched", "refused") == (2, 2)


@pytest.mark.slow
async def test_a_version_that_all_replicas_refuse_ends_a_run_that_waits_for_its_episodes(scene: Scene) -> None:
    phase = await scene.begin(iterations=3, max_staleness=1, deadline_seconds=600)
    version = await asyncio.to_thread(scene.run.exchange.highest_version) + 1
    scene.run.lineage.advance(version)
    refusal = policy_pb2.ServingStatus(replica="replica", failed_version=version, error="CANARY_MISMATCH")
    refusal.updated_at.GetCurrentTime()
    await scene.queue.put_serving(refusal)
    with pytest.raises(RunFailedError, match=r"NOT_SERVED: version .* was refused: .*CANARY_MISMATCH"):
        await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)


async def test_a_resumed_run_keeps_no_more_out_than_its_staleness_allows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(iterations=4, groups=2, max_staleness=1)
    for name in ("0a", "0b", "1a", "1b"):
        scene.enter(f"{name}-1", f"{name}-2")
    await scene.stop_at_first_wait(phase, monkeypatch)
    assert scene.counts("dispatched", "open") == (8, 8)


async def test_a_group_without_variance_is_replaced_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = await scene.begin(iterations=4, groups=2, max_staleness=1, replacement_groups=1)
    scene.enter("a1", "a2")
    for name in ("a1", "a2"):
        scene.score(name)
    await scene.stop_at_first_wait(phase, monkeypatch)
    assert scene.counts("dispatched", "no_variance", "open") == (10, 2, 8)


async def test_a_sampler_that_computes_something_else_ends_the_run_before_anything_is_published(scene: Scene) -> None:
    phase = await scene.begin(iterations=2)
    scene.enter("good", "bad")
    scene.score("good", 1.0)
    scene.score("bad", 0.0)
    with pytest.raises(RunFailedError, match="RATIO_OFF: at equal weights the trainer gives sampled tokens 0"):
        await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)
    assert scene.run.lineage.version == 0
    assert scene.counts("trained", "unused") == (0, 2)


async def test_a_stop_while_replicas_take_a_version_over_keeps_what_was_learned(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(iterations=2, ratio_tolerance=None)
    scene.enter("good", "bad")
    scene.score("good", 1.0)
    scene.score("bad", 0.0)
    announce = scene.run.exchange.announce

    def announce_just_before_the_stop(version: policy_pb2.PolicyVersion) -> None:
        announce(version)
        scene.board.ask_stop()

    monkeypatch.setattr(scene.run.exchange, "announce", announce_just_before_the_stop)
    with pytest.raises(RunStoppedError):
        await asyncio.wait_for(asyncio.to_thread(phase.run), SECONDS)
    assert len((scene.directory / "metrics.jsonl").read_text().splitlines()) == 1
    resumed = await scene.begin(iterations=2, ratio_tolerance=None)
    assert resumed.state()["iteration"] == 1
    assert scene.run.lineage.version == 1
    assert scene.counts("trained", "unused") == (2, 0)


async def test_a_run_that_is_stopped_amid_an_iteration_has_learned_nothing_of_its_groups_yet(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = await scene.begin(groups=3)
    for group in "abc":
        scene.enter(f"{group}1", f"{group}2")
    for name, reward in {"a1": 1.0, "a2": 1.0, "b1": 1.0, "b2": 0.0}.items():
        scene.score(name, reward)
    await scene.stop_at_first_wait(phase, monkeypatch)
    assert scene.counts("unused", "no_variance") == (2, 2)
    resumed = await scene.begin(groups=3)
    assert scene.counts("unused", "no_variance") == (4, 0)
    assert resumed.state()["sampler"]["success"] == {"a": 0.5}
    await scene.stop_at_first_wait(resumed, monkeypatch)
    assert scene.counts("dispatched") == (6,)


async def test_a_trainer_that_died_draws_no_seed_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = await scene.begin(groups=3)
    monkeypatch.setattr(scene.run, "checkpoint", lambda *_: None)
    await scene.stop_at_first_wait(phase, monkeypatch)
    first = scene.books.ledger.unfinished()
    for entry in first:
        scene.books.ledger.settle(entry.episode_id, "EXPIRED", reason="SILENT")
    phase = await scene.begin(groups=3)
    await scene.stop_at_first_wait(phase, monkeypatch)
    second = scene.books.ledger.unfinished()
    assert len(first) == len(second) == 6
    assert not {entry.seed for entry in first} & {entry.seed for entry in second}
