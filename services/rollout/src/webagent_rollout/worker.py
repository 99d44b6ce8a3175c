"""Plays the requests of the queue, up to `concurrency` at once.

For each request: hold it, play it, publish its outcome, and only then acknowledge it. Whatever ends the process in
between leaves the request on the queue, and its next delivery is played from the start; the outcome carries the episode
id as dedupe id. A request that nothing could be published for (it names no run or episode) is terminated, which makes
it a dead letter. `stop` ends the taking of requests; `drain` waits for those under way and hands back the rest.
"""

import asyncio
import contextlib
from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import structlog
from webagent.trajectory.v1.trajectory_pb2 import RolloutRequest, Trajectory, TurnList
from webagent_runtime.queue import Consumer, Delivery

from webagent_rollout.player import Player
from webagent_rollout.ports import Payloads

log = structlog.get_logger()

# The queue refuses envelopes over 256 KiB; headers need room too.
MAX_ENVELOPE_BYTES = 200 * 1024
TAKE_SECONDS = 1.0
HANDED_BACK_SECONDS = 1.0


class Outbox(Protocol):
    """Where outcomes are published."""

    async def publish_trajectory(self, trajectory: Trajectory) -> None:
        """Returns once the queue has stored the trajectory."""


class Worker:
    """Takes requests and owns one task for each that is under way."""

    def __init__(
        self,
        player: Player,
        requests: Callable[[], Consumer[RolloutRequest]],
        outbox: Outbox,
        payloads: Payloads,
        *,
        concurrency: int,
    ) -> None:
        self._player = player
        self._requests = requests
        self._outbox = outbox
        self._payloads = payloads
        self._slots = asyncio.Semaphore(concurrency)
        self._episodes: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Takes requests until `stop`; a queue that is down for long is logged and asked again."""
        self._ended.clear()
        try:
            consumer = self._requests()
            while not self._stopping.is_set():
                await self._take(consumer)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Takes no further requests."""
        self._stopping.set()

    async def drain(self, seconds: float) -> None:
        """Waits for the episodes under way and then hands the rest back to the queue."""
        self.stop()
        if self._episodes:
            await asyncio.wait(self._episodes, timeout=seconds)
        await self._hand_back()
        # A last request may have been taken while the first ones were waited for.
        await self._ended.wait()
        await self._hand_back()

    async def _hand_back(self) -> None:
        left = list(self._episodes)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _take(self, consumer: Consumer[RolloutRequest]) -> None:
        await self._slots.acquire()
        delivery = None
        try:
            delivery = await consumer.next(TAKE_SECONDS)
        except Exception:
            log.exception("no request could be taken")
            await self._pause()
        finally:
            if delivery is None:
                self._slots.release()
        if delivery is not None:
            self._begin(delivery)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), TAKE_SECONDS)

    def _begin(self, delivery: Delivery[RolloutRequest]) -> None:
        task = asyncio.create_task(self._attend(delivery), name=f"episode {delivery.message.episode.episode_id}")
        self._episodes.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._episodes.discard(task)
        self._slots.release()

    async def _attend(self, delivery: Delivery[RolloutRequest]) -> None:
        """Brings one request to its end; the boundary behind which nothing may fall."""
        request = delivery.message
        episode = request.episode.episode_id
        try:
            if not request.run_id or not episode:
                await delivery.terminate("the request names no run or no episode")
                return
            async with delivery.held():
                trajectory = await self._player.play(request, delivery=delivery.delivery)
                await self._publish(trajectory)
                await delivery.ack()
        except asyncio.CancelledError:
            await delivery.nak(HANDED_BACK_SECONDS)
            log.info("request handed back", episode=episode)
            raise
        except Exception:
            log.exception("outcome not published, request handed back", episode=episode)
            await delivery.nak(HANDED_BACK_SECONDS)

    async def _publish(self, trajectory: Trajectory) -> None:
        if trajectory.ByteSize() > MAX_ENVELOPE_BYTES:
            await move_turns_out(trajectory, self._payloads)
        await self._outbox.publish_trajectory(trajectory)


async def move_turns_out(trajectory: Trajectory, payloads: Payloads) -> None:
    """Replaces the turns by a reference to a payload that holds them.

    Its name tells what it holds: an episode that is played once more replaces no turns that are yet to be fetched.
    """
    turns = TurnList(turns=trajectory.turns).SerializeToString()
    name = f"{trajectory.episode.episode_id}/turns-{sha256(turns).hexdigest()[:16]}.binpb"
    trajectory.turns_ref.CopyFrom(await payloads.put(name, turns, "application/x-protobuf"))
    trajectory.ClearField("turns")
