"""Dead letters: messages that no consumer could use, kept until someone replays them.

The server announces such messages; the announcements are kept in a stream, so none is missed while nobody listens. The
worker copies the message to DEAD_LETTERS, then removes it from its own stream, then acknowledges the announcement. Each
step may be repeated: a letter's subject is its stream and sequence, and holds one letter at most.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import nats.js.errors
import structlog
from webagent.trajectory.v1 import trajectory_pb2

from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import streams
from webagent_runtime.queue.connection import TRANSIENT, Connection
from webagent_runtime.queue.pull import Pull, PullBroken
from webagent_runtime.queue.tail import scan, tail

log = structlog.get_logger()

OnDead = Callable[[trajectory_pb2.DeadLetter], Awaitable[None]]
_IDLE_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_ALL = "webagent.dead.*.*"


class DeadLetters:
    """Writes, lists and replays dead letters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, on_dead: OnDead, stop: asyncio.Event) -> None:
        """Buries what the server announces and hands every letter to `on_dead`, old ones first, until `stop`."""
        tasks = [
            asyncio.create_task(self._bury_announced()),
            asyncio.create_task(self._feed(on_dead)),
            asyncio.create_task(stop.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def bury(self, raw: Any) -> None:
        """Writes the letter of a message that its worker gives up."""
        metadata = raw.metadata
        letter = trajectory_pb2.DeadLetter(
            stream=metadata.stream,
            consumer=metadata.consumer,
            sequence=metadata.sequence.stream,
            subject=raw.subject,
            reason="TERMINATED",
            deliveries=metadata.num_delivered,
            payload=raw.data,
        )
        await self._write(letter)

    async def letters(self) -> list[trajectory_pb2.DeadLetter]:
        """All letters, oldest first."""
        records = await scan(self._connection, streams.DEAD_LETTERS, _ALL)
        return [trajectory_pb2.DeadLetter.FromString(record.data) for record in records]

    async def replay(self, letter: trajectory_pb2.DeadLetter) -> None:
        """Puts the message back on its stream and drops the letter."""
        if not letter.subject:
            message = f"message {letter.sequence} of {letter.stream} was gone before its letter could be written"
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "LETTER_EMPTY", message)
        # Another id than the original's, which the server may still remember.
        message_id = f"replay.{letter.stream}.{letter.sequence}"
        await self._connection.publish(letter.subject, letter.payload, stream=letter.stream, message_id=message_id)
        subject = streams.dead_subject(letter.stream, letter.sequence)
        await streams.purge(self._connection, streams.DEAD_LETTERS, subject)

    async def _bury_announced(self) -> None:
        pull = Pull(self._connection, streams.ADVISORIES, streams.ADVISORY_CONSUMER)
        while True:
            try:
                announcement = await pull.next(_IDLE_SECONDS)
                if announcement is not None:
                    await self._bury_one(json.loads(announcement.data))
                    await self._connection.request(announcement.reply, b"+ACK")
            except (PullBroken, ServiceError, nats.js.errors.APIError, *TRANSIENT) as error:
                log.warning("dead_letters_delayed", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _bury_one(self, advisory: dict[str, Any]) -> None:
        stream, sequence = advisory["stream"], advisory["stream_seq"]
        terminated = advisory["type"].endswith(".terminated")
        letter = trajectory_pb2.DeadLetter(
            stream=stream,
            consumer=advisory["consumer"],
            sequence=sequence,
            reason="TERMINATED" if terminated else "MAX_DELIVERIES",
            deliveries=advisory["deliveries"],
        )
        try:
            raw = await self._connection.once(self._get, stream, sequence)
        except nats.js.errors.NotFoundError:
            if not terminated:
                # Acknowledged late, by a worker that was slow and not dead.
                return
        else:
            letter.subject, letter.payload = raw.subject, raw.data or b""
        await self._write(letter)
        if letter.subject:
            await self._delete(stream, sequence)

    async def _get(self, stream: str, sequence: int) -> Any:
        return await self._connection.js.get_msg(stream, seq=sequence)

    async def _write(self, letter: trajectory_pb2.DeadLetter) -> None:
        letter.died_at.GetCurrentTime()
        subject = streams.dead_subject(letter.stream, letter.sequence)
        written = await self._connection.publish(
            subject, letter.SerializeToString(), stream=streams.DEAD_LETTERS, if_absent=True
        )
        if written:
            log.warning("dead_letter", stream=letter.stream, sequence=letter.sequence, reason=letter.reason)

    async def _delete(self, stream: str, sequence: int) -> None:
        try:
            await self._connection.once(self._connection.js.delete_msg, stream, sequence)
        except nats.js.errors.APIError as error:
            if error.code != 404 and "not found" not in str(error.description):
                raise

    async def _feed(self, on_dead: OnDead) -> None:
        async for record in tail(self._connection, streams.DEAD_LETTERS, _ALL, 1):
            await on_dead(trajectory_pb2.DeadLetter.FromString(record.data))
