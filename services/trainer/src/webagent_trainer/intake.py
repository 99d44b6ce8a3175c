"""Takes the run's outcomes from the queue.

Of each trajectory, in this order: archive it, enter its outcome in the ledger, acknowledge it, hand it to the assembly.
A crash in between has it delivered again; the ledger then knows its outcome already. One whose turns cannot be fetched
at the moment is handed back to the queue; one of an episode that the run never dispatched becomes a dead letter. An
episode whose request became a dead letter is DEAD.
"""

from __future__ import annotations

import asyncio
import math

import structlog
from google.protobuf.message import DecodeError
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.errors import ServiceError
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Delivery, Queue

from webagent_trainer.books import Books
from webagent_trainer.ledger import LedgerError

log = structlog.get_logger()

_OUTCOMES = {
    trajectory_pb2.EPISODE_STATUS_SCORED: "SCORED",
    trajectory_pb2.EPISODE_STATUS_INVALID: "INVALID",
    trajectory_pb2.EPISODE_STATUS_EXPIRED: "EXPIRED",
}
_PULL_SECONDS = 5.0
_REQUESTS = "REQUESTS"


class Intake:
    """Reads outcomes until it is stopped."""

    def __init__(self, queue: Queue, payloads: PayloadStore, run_id: str, *, books: Books) -> None:
        self._queue = queue
        self._payloads = payloads
        self._run_id = run_id
        self._ledger = books.ledger
        self._archive = books.archive
        self._assembly = books.assembly

    async def run(self, stop: asyncio.Event) -> None:
        """Takes trajectories and dead letters until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_dead_letters(self._bury, stop))
            taking = tasks.create_task(self._take_all())
            await stop.wait()
            # What it holds is redelivered to whoever asks next.
            taking.cancel()

    async def _take_all(self) -> None:
        consumer = self._queue.trajectories(self._run_id)
        while True:
            delivery = await consumer.next(_PULL_SECONDS)
            if delivery is not None:
                async with delivery.held():
                    await self._take(delivery)

    async def _take(self, delivery: Delivery[trajectory_pb2.Trajectory]) -> None:
        trajectory = delivery.message
        episode_id = trajectory.episode.episode_id
        try:
            outcome, reason = await self._judge(trajectory)
        except ServiceError as error:
            log.warning("payload_delayed", episode=episode_id, error=str(error))
            await delivery.nak(error.retry_after or 0.0)
            return
        try:
            final = await asyncio.to_thread(self._enter, trajectory, outcome, reason)
        except LedgerError as error:
            await delivery.terminate(str(error))
            return
        await delivery.ack()
        if final:
            self._assembly.settle(episode_id, outcome, trajectory if outcome == "SCORED" else None)
        else:
            log.info("late_outcome", episode=episode_id, outcome=outcome)

    def _enter(self, trajectory: trajectory_pb2.Trajectory, outcome: str, reason: str) -> bool:
        self._ledger.check_dispatched(trajectory.episode.episode_id)
        offset = self._archive.append(trajectory)
        reward = trajectory.reward if outcome == "SCORED" else None
        return self._ledger.settle(
            trajectory.episode.episode_id, outcome, reason=reason, reward=reward, archive_offset=offset
        )

    async def _judge(self, trajectory: trajectory_pb2.Trajectory) -> tuple[str, str]:
        """The outcome and its reason; fetches the turns of a scored episode that are kept outside.

        ServiceError: they cannot be had at the moment.
        """
        outcome = _OUTCOMES.get(trajectory.status, "INVALID")
        if trajectory.status not in _OUTCOMES:
            return "INVALID", "BAD_STATUS"
        if outcome != "SCORED":
            return outcome, trajectory.reason
        if not trajectory.HasField("reward") or not math.isfinite(trajectory.reward):
            return "INVALID", "NO_REWARD"
        if trajectory.HasField("turns_ref"):
            try:
                turns = trajectory_pb2.TurnList.FromString(await self._payloads.get(trajectory.turns_ref))
            except ServiceError as error:
                if error.retry_after is not None:
                    raise
                return "INVALID", error.reason
            except DecodeError:
                return "INVALID", "PAYLOAD_CORRUPT"
            trajectory.turns.extend(turns.turns)
        return outcome, ""

    async def _bury(self, letter: trajectory_pb2.DeadLetter) -> None:
        if letter.stream != _REQUESTS:
            return
        try:
            request = trajectory_pb2.RolloutRequest.FromString(letter.payload)
        except DecodeError as error:
            log.warning("letter_unreadable", sequence=letter.sequence, error=str(error))
            return
        if request.run_id != self._run_id:
            return
        episode_id = request.episode.episode_id
        try:
            final = await asyncio.to_thread(self._ledger.settle, episode_id, "DEAD", reason=letter.reason)
        except LedgerError:
            # A letter of an earlier run of the same name.
            return
        if final:
            self._assembly.settle(episode_id, "DEAD", None)
