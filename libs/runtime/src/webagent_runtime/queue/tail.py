"""Reading a stream without consuming it: everything that is there, then whatever comes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import nats.errors
import nats.js.errors
import structlog
from nats.js import api

from webagent_runtime.queue.connection import TRANSIENT, Connection
from webagent_runtime.queue.pull import Pull, PullBroken

log = structlog.get_logger()

_IDLE_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
# The server forgets a reader that has not asked for this long.
_FORGET_SECONDS = 60.0


@dataclass(frozen=True)
class Record:
    """A stored message."""

    sequence: int
    subject: str
    data: bytes


async def scan(connection: Connection, stream: str, subject: str) -> list[Record]:
    """All stored messages on `subject`, oldest first."""
    records: list[Record] = []
    sequence = 1
    while True:
        try:
            raw = await connection.retry(f"read {stream}", _get_next, connection, stream, subject, sequence)
        except nats.js.errors.NotFoundError:
            return records
        sequence = raw.seq + 1
        if not (raw.headers or {}).get("KV-Operation"):
            records.append(Record(raw.seq, raw.subject, raw.data or b""))


async def tail(connection: Connection, stream: str, subject: str, start: int) -> AsyncIterator[Record]:
    """Messages on `subject` from sequence `start` on, each once and in order, for as long as the caller iterates."""
    while True:
        try:
            async with aclosing(_read(connection, stream, subject, start)) as records:
                async for record in records:
                    start = record.sequence + 1
                    yield record
        except (PullBroken, nats.js.errors.APIError, *TRANSIENT) as error:
            log.info("tail_rebound", stream=stream, cause=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read(connection: Connection, stream: str, subject: str, start: int) -> AsyncGenerator[Record, None]:
    info = await connection.once(
        connection.js.add_consumer,
        stream,
        api.ConsumerConfig(
            filter_subject=subject,
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=_FORGET_SECONDS,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    pull = Pull(connection, stream, info.name)
    try:
        while True:
            message = await pull.next(_IDLE_SECONDS)
            if message is not None and not (message.headers or {}).get("KV-Operation"):
                yield Record(message.metadata.sequence.stream, message.subject, message.data)
    finally:
        await pull.close()


async def _get_next(connection: Connection, stream: str, subject: str, sequence: int) -> Any:
    return await connection.js.get_msg(stream, seq=sequence, subject=subject, next=True)
