"""Messages in the hands of a worker: taken one at a time, held while it works, and acknowledged for good.

A message that cannot be decoded is put into the stream of dead letters and terminated; `next` never returns it. A
consumer that vanished is set up again and reading goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import nats.errors
import structlog
from google.protobuf.message import DecodeError, Message
from opentelemetry import trace

from webagent_runtime.errors import ServiceError
from webagent_runtime.queue.connection import Connection
from webagent_runtime.queue.pull import Pull, PullBroken
from webagent_runtime.telemetry import remote_span

log = structlog.get_logger()

_CONFIRM_SECONDS = 2.0

T = TypeVar("T", bound=Message)

# Writes a message's dead letter before it is terminated: termination removes it from its stream.
Bury = Callable[[Any], Awaitable[None]]


class Delivery(Generic[T]):
    """One message, delivered for the `delivery`-th time."""

    def __init__(self, connection: Connection, raw: Any, message: T, bury: Bury) -> None:
        self._connection = connection
        self._raw = raw
        self._bury = bury
        self.message = message
        self.delivery: int = raw.metadata.num_delivered

    async def ack(self) -> None:
        """Removes the message from the queue; returns once the server confirmed it, or will deliver it again."""
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        """Hands the message back; it is delivered again after `delay` seconds."""
        await self._settle(b'-NAK {"delay": %d}' % round(delay * 1e9))

    async def terminate(self, reason: str) -> None:
        """Gives the message up for good and keeps it as a dead letter."""
        await self._bury(self._raw)
        log.warning("message_terminated", subject=self._raw.subject, reason=reason)
        await self._settle(b"+TERM " + reason.encode())

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keeps the message from being redelivered while the block runs, in a span of the sender's trace."""
        headers = dict(self._raw.headers or {})
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            with remote_span(f"process {self._raw.subject}", headers, trace.SpanKind.CONSUMER):
                yield
        finally:
            heartbeat.cancel()

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._connection.config.ack_wait_seconds / 3)
            try:
                await self._connection.nats.publish(self._raw.reply, b"+WPI")
            except nats.errors.Error as error:
                log.warning("heartbeat_failed", subject=self._raw.subject, error=str(error))

    async def _settle(self, verdict: bytes) -> None:
        """Tells the server, and again until it confirms.

        A server that crashed may not remember this delivery, and then never confirms. Once `ack_wait_seconds` are over
        the message is delivered again whatever is said, so that is when this gives up.
        """
        try:
            async with asyncio.timeout(self._connection.config.ack_wait_seconds):
                await self._connection.retry(f"{verdict[:4].decode()} {self._raw.subject}", self._settle_once, verdict)
        except (TimeoutError, ServiceError) as error:
            log.warning("delivery_not_confirmed", subject=self._raw.subject, verdict=verdict.decode(), error=str(error))

    async def _settle_once(self, verdict: bytes) -> None:
        await self._connection.nats.request(self._raw.reply, verdict, timeout=_CONFIRM_SECONDS)


class Consumer(Generic[T]):
    """Reads one consumer's messages as protobuf. `next` may be called concurrently."""

    def __init__(
        self,
        connection: Connection,
        model: type[T],
        *,
        stream: str,
        name: str,
        provision: Callable[[], Awaitable[None]],
        bury: Bury,
    ) -> None:
        self._connection = connection
        self._model = model
        self._provision = provision
        self._bury = bury
        self._pull = Pull(connection, stream, name)
        self._lock = asyncio.Lock()
        self._closed = False

    async def next(self, timeout: float) -> Delivery[T] | None:
        """The next message, or None if there is none within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        try:
            async with asyncio.timeout_at(end):
                await self._lock.acquire()
        except TimeoutError:
            return None
        try:
            while not self._closed and (left := end - loop.time()) > 0:
                raw = await self._take(left)
                delivery = None if raw is None else await self._decode(raw)
                if delivery is not None:
                    return delivery
            return None
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Stops reading; a `next` under way ends within seconds."""
        self._closed = True
        self._pull.stop()
        async with self._lock:
            await self._pull.close()

    async def _take(self, timeout: float) -> Any | None:
        try:
            return await self._pull.next(timeout)
        except PullBroken as broken:
            log.warning("consumer_rebound", cause=str(broken))
            await self._connection.retry("set up the consumer", self._provision)
            return None

    async def _decode(self, raw: Any) -> Delivery[T] | None:
        try:
            message = self._model.FromString(raw.data)
        except DecodeError as error:
            broken = Delivery(self._connection, raw, self._model(), self._bury)
            await broken.terminate(f"not a {self._model.DESCRIPTOR.full_name}: {error}")
            return None
        return Delivery(self._connection, raw, message, self._bury)
