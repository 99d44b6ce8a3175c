"""Pulling messages off a JetStream consumer, one at a time, across restarts of the server.

At most one pull request is outstanding, and none is sent while disconnected: a request that the server answers after
its asker left would hold a message in nobody's hands. Requests expire soon, so one that a restart swallowed costs
little. Messages reach the caller in the order in which they arrive; a cancelled `next` loses none.
"""

import asyncio
import json
from typing import Any

from webagent_runtime.queue.connection import Connection

PULL_SECONDS = 2.0
_LATE_SECONDS = 0.2
_NOTHING_YET = {"404", "408"}


class PullBroken(Exception):  # noqa: N818  it is a state of the consumer, not of the program
    """The consumer is gone or cannot be read now; set it up again."""


class Pull:
    """The reading side of one consumer. Not for concurrent use."""

    def __init__(self, connection: Connection, stream: str, consumer: str) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._name = f"{stream}/{consumer}"
        self._subscription: Any = None
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._inbox = ""
        self._requests = 0
        self._expires = 0.0
        self._closed = False

    async def next(self, timeout: float) -> Any | None:
        """The next message, or None if there is none within `timeout` seconds or the pull is stopped."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while not self._closed and (left := end - loop.time()) > 0:
            if not await self._connection.wait_connected(min(PULL_SECONDS, left)):
                continue
            await self._request(min(PULL_SECONDS, left))
            try:
                async with asyncio.timeout_at(min(end, self._expires + _LATE_SECONDS)):
                    message = await self._arrived.get()
            except TimeoutError:
                continue
            status = (message.headers or {}).get("Status", "").partition(" ")[0]
            if not status:
                self._expires = 0.0
                return message
            if message.subject != self._reply():
                continue
            self._expires = 0.0
            if status not in _NOTHING_YET:
                raise PullBroken(f"{self._name}: {status} {message.headers.get('Description', '')}".strip())
        return None

    def stop(self) -> None:
        """Makes `next` return soon, now and later."""
        self._closed = True

    async def close(self) -> None:
        """Stops reading and hands back what was delivered but never taken."""
        self.stop()
        if self._subscription is None or not self._connection.nats.is_connected:
            return
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message.reply:
                await self._connection.nats.publish(message.reply, b"-NAK")
        await self._subscription.unsubscribe()
        self._subscription = None

    async def _request(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._subscription is None:
            self._inbox = self._connection.nats.new_inbox()
            self._subscription = await self._connection.nats.subscribe(f"{self._inbox}.*", cb=self._arrived.put)
        if now < self._expires or not self._arrived.empty():
            return
        self._requests += 1
        self._expires = now + seconds
        request = json.dumps({"batch": 1, "expires": round(seconds * 1e9)}).encode()
        await self._connection.nats.publish(self._subject, request, reply=self._reply())

    def _reply(self) -> str:
        return f"{self._inbox}.{self._requests}"
