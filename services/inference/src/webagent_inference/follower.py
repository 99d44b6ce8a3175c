"""Follows the bucket of policy versions: applies the newest, says what is served.

Versions that arrive while another is applied are skipped but for the newest. A version whose files do not load is tried
again a few times; one that fails its checks is not. Either way the replica's own key says what it serves and, if an
update failed, why.
"""

import asyncio

import structlog
from google.protobuf.timestamp_pb2 import Timestamp
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue

from webagent_inference.config import UpdateConfig
from webagent_inference.weights import Updater

log = structlog.get_logger()

RETRIED = frozenset({"WEIGHTS_NOT_FOUND", "UPDATE_FAILED"})


class Follower:
    """One replica's side of the bucket."""

    def __init__(self, queue: Queue, updater: Updater, replica: str, config: UpdateConfig) -> None:
        self._queue = queue
        self._updater = updater
        self._replica = replica
        self._config = config
        self._newest: policy_pb2.PolicyVersion | None = None
        self._arrived = asyncio.Event()

    async def catch_up(self) -> None:
        """Applies the newest version that there is; a failure leaves the base model serving."""
        newest = await self._queue.latest_version()
        if newest is not None:
            await self._apply(newest)

    async def run(self) -> None:
        """Follows until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._apply_newest())
            group.create_task(self._publish())

    async def _watch(self) -> None:
        async for version in self._queue.watch_versions():
            if self._newest is None or version.version > self._newest.version:
                self._newest = version
                self._arrived.set()

    async def _apply_newest(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._newest is not None:
                await self._apply(self._newest)

    async def _apply(self, version: policy_pb2.PolicyVersion) -> None:
        for attempt in range(1, self._config.attempts + 1):
            try:
                await self._updater.apply(version.version, version.uri, version.manifest_digest)
            except ServiceError as error:
                if error.reason not in RETRIED or attempt == self._config.attempts:
                    return
            else:
                return
            if await self._superseded(self._config.retry_seconds):
                return

    async def _superseded(self, seconds: float) -> bool:
        """Whether a newer version arrives within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _publish(self) -> None:
        while True:
            await self._updater.changed.wait()
            self._updater.changed.clear()
            outcome = self._updater.outcome
            now = Timestamp()
            now.GetCurrentTime()
            status = policy_pb2.ServingStatus(
                replica=self._replica,
                version=outcome.served.number,
                manifest_digest=outcome.served.digest,
                error=outcome.error,
                failed_version=outcome.failed_version,
                updated_at=now,
            )
            try:
                await self._queue.put_serving(status)
            except ServiceError as error:
                log.warning("serving_status_not_written", version=status.version, error=str(error))
                self._updater.changed.set()
