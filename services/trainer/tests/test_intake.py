"""From the queue into archive and ledger: each outcome once, dead requests as DEAD, turns from the payload store."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.config import PayloadConfig
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Queue, streams
from webagent_trainer.board import Board
from webagent_trainer.books import Archive, Books, open_books
from webagent_trainer.config import parse_run
from webagent_trainer.groups import Group
from webagent_trainer.intake import Intake
from webagent_trainer.ledger import Entry
from webagent_trainer.testing import make_turn

SECONDS = 30.0


class Payloads(PayloadStore):
    """A directory that is away the first time that `away` is asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(PayloadConfig(uri=root.as_uri()))
        self._directory = root
        self.away = ""

    async def get(self, ref: trajectory_pb2.PayloadRef) -> bytes:
        if not self.away or self.away not in ref.uri:
            return await super().get(ref)
        self.away = ""
        hidden = self._directory.rename(self._directory.with_name("hidden"))
        self._directory.touch()
        try:
            return await super().get(ref)
        finally:
            self._directory.unlink()
            hidden.rename(self._directory)


class Desk:
    """A running intake and what it writes to."""

    def __init__(self, queue: Queue, books: Books, payloads: Payloads, run_id: str) -> None:
        self.queue, self.books, self.payloads, self.run_id = queue, books, payloads, run_id

    def expect(self, *episodes: str) -> None:
        self.books.ledger.enter(Entry(name, "g", 0, "suite", "task", 1, 0, 1e12) for name in episodes)
        self.books.assembly.add(Group("g", "task", 1, 0, 1e12, set(episodes)))

    async def outcome(self) -> Group:
        """The group, once all of its episodes have an outcome."""
        async with asyncio.timeout(SECONDS):
            while not self.books.assembly.complete():
                await asyncio.to_thread(self.books.assembly.wait, 1.0)
        return self.books.assembly.take(1)[0]

    async def outside(self, name: str) -> trajectory_pb2.Trajectory:
        """As `scored`, its turns in the payload store."""
        trajectory = self.scored(name)
        turns = trajectory_pb2.TurnList(turns=trajectory.turns).SerializeToString()
        trajectory.turns_ref.CopyFrom(await self.payloads.put(f"{name}.turns", turns, "application/protobuf"))
        del trajectory.turns[:]
        return trajectory

    def scored(self, name: str) -> trajectory_pb2.Trajectory:
        trajectory = trajectory_pb2.Trajectory(
            run_id=self.run_id,
            status=trajectory_pb2.EPISODE_STATUS_SCORED,
            reward=1.0,
            turns=[make_turn([1, 2], [3], [-1.0])],
        )
        trajectory.episode.episode_id = name
        return trajectory


@pytest.fixture
async def desk(queue: Queue, tmp_path: Path) -> AsyncIterator[Desk]:
    run_id = tmp_path.name.replace("[", "_").replace("]", "_")
    config = parse_run(
        f"run_directory: {tmp_path}\nmodel: m\nrl: {{suite: s, tasks: [a], seeds: {{first: 0, count: 99}}}}"
    )
    books = open_books(config, Board("run"))
    assert books is not None
    payloads = Payloads(tmp_path / "payloads")
    await queue.ensure_run(run_id)
    stop = asyncio.Event()
    running = asyncio.create_task(Intake(queue, payloads, run_id, books=books).run(stop))
    yield Desk(queue, books, payloads, run_id)
    stop.set()
    await asyncio.wait_for(running, SECONDS)


async def test_an_outcome_is_archived_entered_and_handed_on(desk: Desk, tmp_path: Path) -> None:
    desk.expect("e1")
    await desk.queue.publish_trajectory(desk.scored("e1"))
    group = await desk.outcome()
    assert list(group.scored) == ["e1"]
    (archived,) = delimited.read(tmp_path / "archive.trajectories", trajectory_pb2.Trajectory)
    assert archived == desk.scored("e1") == desk.books.archive.read(0)
    assert desk.books.ledger.counts()["scored"] == 1


async def test_turns_that_are_kept_outside_are_fetched_and_a_lost_payload_is_invalid(desk: Desk) -> None:
    desk.expect("e2", "e3")
    for name in ("e2", "e3"):
        trajectory = await desk.outside(name)
        if name == "e3":
            trajectory.turns_ref.sha256 = "0" * 64
        await desk.queue.publish_trajectory(trajectory)
    group = await desk.outcome()
    assert len(group.scored["e2"].turns) == 1
    assert group.lost == 1
    assert desk.books.ledger.counts()["invalid"] == 1


async def test_turns_whose_store_is_away_for_a_moment_are_fetched_later(desk: Desk) -> None:
    desk.expect("e9", "e10")
    desk.payloads.away = "e9.turns"
    for trajectory in [await desk.outside(name) for name in ("e9", "e10")]:
        await desk.queue.publish_trajectory(trajectory)
    group = await desk.outcome()
    assert list(group.scored) == ["e10", "e9"]
    assert all(len(trajectory.turns) == 1 for trajectory in group.scored.values())


@pytest.mark.parametrize("reward", [None, math.nan, math.inf])
async def test_a_scored_episode_without_reward_is_invalid(desk: Desk, reward: float | None) -> None:
    episode_id = f"without-{reward}"
    desk.expect(episode_id)
    trajectory = desk.scored(episode_id)
    trajectory.ClearField("reward")
    if reward is not None:
        trajectory.reward = reward
    await desk.queue.publish_trajectory(trajectory)
    assert (await desk.outcome()).lost == 1
    assert desk.books.ledger.counts()["invalid"] == 1


async def die(desk: Desk, episode_id: str) -> None:
    """Has an episode's request become a dead letter."""
    request = trajectory_pb2.RolloutRequest(run_id=desk.run_id, group_id="g")
    request.episode.episode_id = episode_id
    await desk.queue.publish_request(request)
    delivery = await desk.queue.requests().next(SECONDS)
    assert delivery is not None
    await delivery.terminate("poison")


async def test_a_request_that_dies_makes_its_episode_dead(desk: Desk) -> None:
    desk.expect("e5")
    await die(desk, "e5")
    assert (await desk.outcome()).lost == 1
    assert desk.books.ledger.counts()["dead"] == 1


async def test_a_dead_request_that_nobody_can_read_is_none_of_a_runs_episodes(desk: Desk) -> None:
    desk.expect("e8")
    await desk.queue._connection.js.publish(streams.request_subject(desk.run_id), b"\xff\xff\xff")
    # It is buried on the way to one that can be read.
    await die(desk, "e8")
    assert (await desk.outcome()).lost == 1


async def test_an_episode_that_was_never_dispatched_becomes_a_dead_letter_and_no_entry(
    desk: Desk, tmp_path: Path
) -> None:
    desk.expect("e7")
    await desk.queue.publish_trajectory(desk.scored("e6"))
    await desk.queue.publish_trajectory(desk.scored("e7"))
    assert list((await desk.outcome()).scored) == ["e7"]
    assert desk.books.ledger.counts()["dispatched"] == 1
    archived = delimited.read(tmp_path / "archive.trajectories", trajectory_pb2.Trajectory)
    assert [trajectory.episode.episode_id for trajectory in archived] == ["e7"]


def test_half_a_message_at_the_end_of_the_archive_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    delimited.append(path, trajectory_pb2.Trajectory(run_id="a"))
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x20half")
    archive = Archive(path)
    assert path.stat().st_size == whole
    offset = archive.append(trajectory_pb2.Trajectory(run_id="b"))
    assert archive.read(offset).run_id == "b"
