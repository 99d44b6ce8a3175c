"""The run's dealings with the queue, as blocking calls of the training thread. Every wait is bounded."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue

from webagent_trainer.errors import RunFailedError, RunStoppedError

log = structlog.get_logger()

T = TypeVar("T")

_DISPATCHES_AT_ONCE = 32
_LOOK_SECONDS = 0.5
_STRAGGLER_SECONDS = 5.0


class Exchange:
    """Requests out, versions out, and what replicas say they serve."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: Queue) -> None:
        self._loop = loop
        self._queue = queue
        # Replicas that did not follow in time, with the moment of the last they said.
        self._lost: dict[str, int] = {}

    def dispatch(self, requests: Sequence[trajectory_pb2.RolloutRequest]) -> None:
        """Asks for episodes."""
        self._call(self._dispatch(requests))

    def announce(self, version: policy_pb2.PolicyVersion) -> None:
        """Puts a version whose files are complete into the bucket."""
        self._call(self._queue.publish_version(version))

    def highest_version(self) -> int:
        """The highest number in the bucket; 0 if it is empty."""
        latest = self._call(self._queue.latest_version())
        return 0 if latest is None else latest.version

    def wait_served(self, version: int, *, seconds: float, required: bool, stop: Callable[[], bool]) -> None:
        """Returns once every replica serves `version`; without any replica at once, unless one is `required`.

        Once one serves, a replica that does not soon follow is left behind with a warning.
        """
        waiting = asyncio.run_coroutine_threadsafe(self._served(version, seconds, required=required), self._loop)
        while True:
            try:
                waiting.result(_LOOK_SECONDS)
            except concurrent.futures.TimeoutError:
                if waiting.done():
                    raise
                if stop():
                    waiting.cancel()
                    raise RunStoppedError from None
            else:
                return

    def check_served(self, version: int) -> None:
        """Raises NOT_SERVED if every replica that follows has refused `version`; does not wait for any."""
        try:
            statuses = self._call(self._queue.serving())
        except ServiceError as error:
            # A queue that is away says nothing about replicas.
            log.info("serving_unknown", reason=error.reason)
            return
        self._settled({status.replica: status for status in statuses}, version)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert threading.current_thread() is not threading.main_thread()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _dispatch(self, requests: Sequence[trajectory_pb2.RolloutRequest]) -> None:
        slots = asyncio.Semaphore(_DISPATCHES_AT_ONCE)

        async def one(request: trajectory_pb2.RolloutRequest) -> None:
            async with slots:
                await self._queue.publish_request(request)

        async with asyncio.TaskGroup() as tasks:
            for request in requests:
                tasks.create_task(one(request))

    async def _served(self, version: int, seconds: float, *, required: bool) -> None:
        statuses = {status.replica: status for status in await self._queue.serving()}
        if not statuses and not required:
            return
        began = self._loop.time()
        hurried = False
        try:
            async with asyncio.timeout(seconds) as bound:
                async for status in self._queue.watch_serving():
                    statuses[status.replica] = status
                    if self._settled(statuses, version):
                        return
                    if any(status.version >= version for status in statuses.values()) and not hurried:
                        # Entries of replicas that died stay in the bucket: the rest gets as long again, and a little.
                        hurried = True
                        now = self._loop.time()
                        bound.reschedule(min(began + seconds, now + (now - began) + _STRAGGLER_SECONDS))
        except TimeoutError:
            pass
        finally:
            self._note_lost(statuses, version)
        if not any(status.version >= version for status in statuses.values()):
            said = ", ".join(_describe(status) for status in statuses.values()) or "no replica has said anything"
            raise RunFailedError("NOT_SERVED", f"no replica serves version {version} within {seconds:g} s: {said}")

    def _settled(self, statuses: dict[str, policy_pb2.ServingStatus], version: int) -> bool:
        """Whether every replica that still follows serves the version, or has failed to beside one that does."""
        following = [s for s in statuses.values() if self._lost.get(s.replica) != s.updated_at.ToNanoseconds()]
        served = [status for status in following if status.version >= version]
        failed = [status for status in following if status.version < version and status.failed_version == version]
        if failed and len(failed) == len(following):
            said = ", ".join(map(_describe, failed))
            raise RunFailedError("NOT_SERVED", f"version {version} was refused: {said}")
        return bool(served) and len(served) + len(failed) == len(following)

    def _note_lost(self, statuses: dict[str, policy_pb2.ServingStatus], version: int) -> None:
        behind = {s.replica: s.updated_at.ToNanoseconds() for s in statuses.values() if s.version < version}
        for replica in behind.keys() - self._lost.keys():
            log.warning("replica_left_behind", version=version, replica=replica, said=_describe(statuses[replica]))
        self._lost = behind


def _describe(status: policy_pb2.ServingStatus) -> str:
    error = f" ({status.error})" if status.error else ""
    return f"{status.replica} serves {status.version}{error}"
