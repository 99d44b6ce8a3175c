"""Following the bucket of policy versions on a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from webagent.trajectory.v1 import policy_pb2
from webagent_inference.follower import Follower
from webagent_runtime.config import QueueConfig
from webagent_runtime.queue import Queue
from webagent_runtime.testing import NatsServer, nats_server

if TYPE_CHECKING:
    from conftest import Served, Trainer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    with nats_server() as server:
        yield server


@asynccontextmanager
async def following(served: Served, queue: Queue) -> AsyncIterator[Follower]:
    core = served.replica.core
    follower = Follower(queue, core.updater, "replica.1", core.updater.config)
    await follower.catch_up()
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def connected(nats: NatsServer) -> AsyncIterator[Queue]:
    queue = await Queue.connect(QueueConfig(url=nats.url), name="test")
    try:
        await queue.ensure()
        yield queue
    finally:
        await queue.close()


async def status(queue: Queue, *, version: int = 0, failed: int = 0) -> policy_pb2.ServingStatus:
    """The replica's status once it serves the version, or says that one failed."""
    async with asyncio.timeout(100):
        async for each in queue.watch_serving():
            if each.version == version or (failed and each.failed_version == failed):
                return each
    raise AssertionError


async def test_the_newest_version_is_served_before_the_replica_is_ready(
    served: Served, trainer: Trainer, nats: NatsServer
) -> None:
    async with connected(nats) as queue:
        for version in (trainer.publish(), trainer.publish()):
            await queue.publish_version(version)
        async with following(served, queue):
            assert served.replica.core.policy.version.number == version.version
            said = await status(queue, version=version.version)
    assert (said.manifest_digest, said.error) == (version.manifest_digest, "")


async def test_new_versions_are_applied_and_a_bad_one_is_reported_and_passed_over(
    served: Served, trainer: Trainer, nats: NatsServer
) -> None:
    async with connected(nats) as queue, following(served, queue):
        good = trainer.publish()
        await queue.publish_version(good)
        await status(queue, version=good.version)
        bad = trainer.publish(noise=0.5, canary_of=0.02)
        await queue.publish_version(bad)
        said = await status(queue, failed=bad.version)
        assert (said.version, said.error.partition(":")[0]) == (good.version, "CANARY_MISMATCH")
        better = trainer.publish()
        await queue.publish_version(better)
        said = await status(queue, version=better.version)
        assert (said.error, said.failed_version) == ("", 0)


async def test_following_survives_a_restart_of_the_queue(served: Served, trainer: Trainer, nats: NatsServer) -> None:
    async with connected(nats) as queue, following(served, queue):
        await asyncio.to_thread(nats.restart)
        version = trainer.publish()
        await queue.publish_version(version)
        assert (await status(queue, version=version.version)).replica == "replica.1"


async def test_missing_files_leave_the_old_version_serving(served: Served, trainer: Trainer, nats: NatsServer) -> None:
    before = served.replica.core.policy.version
    version = trainer.publish()
    lost = policy_pb2.PolicyVersion(
        version=version.version, uri="file:///nowhere", manifest_digest=version.manifest_digest
    )
    async with connected(nats) as queue:
        await queue.publish_version(lost)
        async with following(served, queue):
            said = await status(queue, failed=version.version)
    assert said.error.startswith("WEIGHTS_NOT_FOUND")
    assert said.version == before.number
