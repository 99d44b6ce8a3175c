"""Reads browser sessions through env's ProbeService.

One channel is open per env address, at most `limit` in all: the one idle for longest is closed for a new address, and
where none is idle the caller waits, bounded by its own timeout. A channel is never closed under a caller.
Every fault comes out as a NoVerdictError that carries env's reason, or one of ours where env was not reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from webagent.env.v1 import probe_pb2, probe_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig
from webagent_runtime.errors import from_rpc

from webagent_evaluator.locators import Script
from webagent_evaluator.verdicts import NoVerdictError


@dataclass
class _Open:
    channel: grpc.aio.Channel
    callers: int = 0


class Session:
    """One browser session, read-only; every read ends at `deadline` of the event loop's clock."""

    def __init__(self, channel: grpc.aio.Channel, session_id: str, deadline: float) -> None:
        self._stub = probe_pb2_grpc.ProbeServiceStub(channel)
        self._id = session_id
        self._deadline = deadline

    async def rule(self) -> probe_pb2.TaskRule:
        """The rule by which the session's task is judged."""
        request = probe_pb2.GetTaskRuleRequest(session_id=self._id)
        try:
            response = await self._stub.GetTaskRule(request, timeout=self._left())
        except grpc.aio.AioRpcError as error:
            raise _fault(error) from error
        return response.rule

    async def read(self, script: Script) -> tuple[str, str]:
        """What a script, or none, reads of a page, as JSON; and that page's address."""
        request = probe_pb2.ProbeRequest(session_id=self._id, url=script.url)
        if script.javascript is None:
            request.html.SetInParent()
        else:
            request.javascript = script.javascript
        try:
            response = await self._stub.Probe(request, timeout=self._left())
        except grpc.aio.AioRpcError as error:
            raise _fault(error) from error
        return response.value_json, response.url

    async def read_in_place(self, javascript: str) -> tuple[str, str]:
        """The value of JavaScript in the agent's current page, as JSON; and the page's address."""
        return await self.read(Script("", javascript))

    async def url(self) -> str:
        """Address of the agent's current page."""
        return (await self.read_in_place("null"))[1]

    def _left(self) -> float:
        return max(0.001, self._deadline - asyncio.get_running_loop().time())


class Sessions:
    """Opens sessions for reading, wherever they are."""

    def __init__(self, config: ClientConfig, limit: int) -> None:
        self._config = config
        self._limit = limit
        self._open: dict[str, _Open] = {}
        self._released = asyncio.Condition()

    @asynccontextmanager
    async def session(self, address: str, session_id: str, timeout: float) -> AsyncIterator[Session]:
        """A session for reading within `timeout` seconds."""
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                entry = await self._take(address)
        except TimeoutError as error:
            raise NoVerdictError("EVALUATOR_BUSY", f"{self._limit} environments are being read already") from error
        try:
            yield Session(entry.channel, session_id, deadline)
        finally:
            entry.callers -= 1
            async with self._released:
                self._released.notify_all()

    async def idle(self) -> None:
        """Waits until nothing is being read."""
        async with self._released:
            await self._released.wait_for(lambda: not any(entry.callers for entry in self._open.values()))

    async def close(self) -> None:
        """Closes every channel."""
        while self._open:
            _, entry = self._open.popitem()
            await entry.channel.close()

    async def _take(self, address: str) -> _Open:
        async with self._released:
            while address not in self._open and len(self._open) >= self._limit:
                idle = next((name for name, entry in self._open.items() if not entry.callers), None)
                if idle is None:
                    await self._released.wait()
                else:
                    await self._open.pop(idle).channel.close()
            entry = self._open.pop(address, None) or _Open(open_channel(address, self._config))
            entry.callers += 1
            self._open[address] = entry  # last in order: the most recently used
            return entry


def _fault(error: grpc.aio.AioRpcError) -> NoVerdictError:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoVerdictError("PROBE_TIMEOUT", "the session was not read in time")
    cause = from_rpc(error)
    # The code's own name means that no server gave a reason: none was reached.
    reason = "ENV_UNREACHABLE" if cause.reason == "UNAVAILABLE" else cause.reason
    return NoVerdictError(reason, cause.message)
