"""One outcome per request, over a real NATS JetStream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from nats import connect
from webagent.trajectory.v1 import trajectory_pb2 as tp
from webagent_rollout.player import Player
from webagent_rollout.testing import Process, ScriptedPolicy, episode, live_sessions, request
from webagent_rollout.worker import Outbox, Worker, move_turns_out
from webagent_runtime.config import QueueConfig
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Queue
from webagent_runtime.testing import nats_server

RIGHT = 'do(action="Click", element="0")'
BOUND = 30.0


@pytest.fixture(scope="module")
def nats() -> Iterator[str]:
    with nats_server() as server:
        yield server.url


@pytest.fixture
async def queue(nats: str) -> AsyncIterator[Queue]:
    queue = await Queue.connect(QueueConfig(url=nats, ack_wait_seconds=2), name="test")
    await queue.ensure()
    await queue.ensure_run("run")
    yield queue
    await queue.drop_run("run")
    await queue.close()


@pytest.fixture
def working(
    player: Player, payloads: PayloadStore, queue: Queue
) -> Callable[..., contextlib.AbstractAsyncContextManager[Worker]]:
    @asynccontextmanager
    async def start(outbox: Outbox = queue, drain_seconds: float = 0.0) -> AsyncIterator[Worker]:
        worker = Worker(player, queue.requests, outbox, payloads, concurrency=4)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            await worker.drain(drain_seconds)
            await running

    return start


async def outcome(queue: Queue) -> tp.Trajectory:
    delivery = await queue.trajectories("run").next(BOUND)
    assert delivery is not None
    await delivery.ack()
    return delivery.message


async def nothing_left(queue: Queue) -> bool:
    """True once neither a request nor an outcome is on the queue."""
    request = await queue.requests().next(3)
    return request is None and await queue.trajectories("run").next(0.2) is None


async def test_a_request_becomes_one_outcome_and_is_acknowledged(queue: Queue, working, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: RIGHT
    async with working():
        await queue.publish_request(request(episode("one")))
        trajectory = await outcome(queue)
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 1.0)
    assert (trajectory.run_id, trajectory.group_id, trajectory.delivery) == ("run", "group", 1)
    assert await nothing_left(queue)


async def test_a_request_taken_past_its_deadline_is_expired(queue: Queue, working) -> None:
    async with working():
        await queue.publish_request(request(episode("expired"), seconds=-1))
        trajectory = await outcome(queue)
    assert trajectory.status == tp.EPISODE_STATUS_EXPIRED


async def test_a_request_that_cannot_be_played_is_invalid_with_its_reason(queue: Queue, working) -> None:
    async with working():
        await queue.publish_request(request(episode("bad", prompt="nosuch")))
        trajectory = await outcome(queue)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "UNKNOWN_PROMPT")


async def test_an_outcome_that_was_not_published_is_not_acknowledged(
    queue: Queue, working, policy: ScriptedPolicy
) -> None:
    class Flaky:
        """Fails the first time."""

        def __init__(self) -> None:
            self.refused: list[str] = []

        async def publish_trajectory(self, trajectory: tp.Trajectory) -> None:
            if not self.refused:
                self.refused.append(trajectory.episode.episode_id)
                raise ConnectionError("the network is down")
            await queue.publish_trajectory(trajectory)

    policy.script = lambda prompt: RIGHT
    outbox = Flaky()
    async with working(outbox=outbox):
        await queue.publish_request(request(episode("flaky")))
        trajectory = await outcome(queue)
    assert outbox.refused == ["flaky"]
    assert trajectory.delivery == 2


async def test_a_worker_that_stops_hands_its_request_to_another_who_starts_anew(
    queue: Queue, working, policy: ScriptedPolicy, env: Process
) -> None:
    asked = asyncio.Event()

    async def wait_for_ever() -> None:
        asked.set()
        await asyncio.Event().wait()

    policy.before_reply = wait_for_ever
    policy.script = lambda prompt: RIGHT
    async with working():
        await queue.publish_request(request(episode("handed")))
        async with asyncio.timeout(BOUND):
            await asked.wait()
    assert await live_sessions(env.address, "handed") == []
    policy.before_reply = None
    async with working():
        trajectory = await outcome(queue)
    assert (trajectory.delivery, trajectory.reward, len(trajectory.turns)) == (2, 1.0, 1)


async def test_a_drain_lets_episodes_end_that_can(queue: Queue, working, policy: ScriptedPolicy) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        asked.set()
        await go.wait()

    policy.before_reply = wait
    policy.script = lambda prompt: RIGHT
    async with working(drain_seconds=BOUND) as worker:
        await queue.publish_request(request(episode("drained")))
        async with asyncio.timeout(BOUND):
            await asked.wait()
        worker.stop()
        go.set()
    assert (await outcome(queue)).delivery == 1


async def test_a_request_that_names_no_episode_is_a_dead_letter(queue: Queue, nats: str, working) -> None:
    nameless = tp.RolloutRequest(run_id="run", group_id="group")
    stop = asyncio.Event()
    letters: list[tp.DeadLetter] = []

    async def on_dead(letter: tp.DeadLetter) -> None:
        letters.append(letter)
        stop.set()

    async with working(), asyncio.timeout(BOUND):
        # As another client may: ours refuses to.
        client = await connect(nats)
        await client.jetstream().publish("webagent.requests.run", nameless.SerializeToString())
        await client.close()
        await queue.run_dead_letters(on_dead, stop)
    assert [tp.RolloutRequest.FromString(letter.payload) for letter in letters] == [nameless]


async def test_turns_that_do_not_fit_the_envelope_go_by_reference(payloads: PayloadStore) -> None:
    turns = [tp.Turn(prompt_token_ids=range(1000, 9000), reply_text=str(i)) for i in range(40)]
    trajectory = tp.Trajectory(episode=episode("long"), delivery=1, turns=turns)
    await move_turns_out(trajectory, payloads)
    assert not trajectory.turns
    assert list(tp.TurnList.FromString(await payloads.get(trajectory.turns_ref)).turns) == turns


async def test_turns_of_an_episode_that_is_played_once_more_leave_the_first_ones(payloads: PayloadStore) -> None:
    first, second = (
        tp.Trajectory(episode=episode("twice"), delivery=1, turns=[tp.Turn(reply_text=text)]) for text in ("a", "b")
    )
    await move_turns_out(first, payloads)
    await move_turns_out(second, payloads)
    turns = [tp.TurnList.FromString(await payloads.get(one.turns_ref)).turns for one in (first, second)]
    assert [one.reply_text for (one,) in turns] == ["a", "b"]
