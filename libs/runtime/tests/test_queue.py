"""The queue on a real NATS: stored once, taken by one, held while worked on, acknowledged for good."""

import asyncio
import uuid

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.js import api
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime import metrics
from webagent_runtime.config import ConfigError, QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue, streams
from webagent_runtime.queue.queue import MAX_ENVELOPE_BYTES
from webagent_runtime.testing import free_port, nats_server


async def take_all(consumer) -> list[str]:
    taken = []
    while (delivery := await consumer.next(0.3)) is not None:
        taken.append(delivery.message.episode.episode_id)
        await delivery.ack()
    return taken


async def test_provisioning_twice_changes_nothing(connect):
    async with connect() as queue:
        await queue.ensure()
        await queue.ensure()


async def test_a_differing_stream_is_updated(connect):
    async with connect(requests_max_bytes=1_000_000), connect(requests_max_bytes=2_000_000) as queue:
        info = await queue._connection.js.stream_info(streams.REQUESTS)
    assert info.config.max_bytes == 2_000_000


async def test_a_stream_that_cannot_be_updated_is_one_clear_line():
    with nats_server() as nats:
        queue = await Queue.connect(QueueConfig(url=nats.url), name="test")
        limits = api.StreamConfig(name=streams.REQUESTS, subjects=["webagent.requests.*"])
        await queue._connection.js.add_stream(limits)
        with pytest.raises(ConfigError, match="retention is limits, wanted workqueue"):
            await queue.ensure()
        await queue.close()


async def test_a_request_reaches_one_consumer_and_is_gone_after_its_ack(connect, request_of):
    async with connect() as queue, connect() as other:
        await queue.publish_request(request_of("a"))
        first, second = queue.requests(), other.requests()
        delivery = await first.next(2)
        assert delivery.message == request_of("a")
        assert delivery.delivery == 1
        assert await second.next(0.2) is None
        await delivery.ack()
        assert (await queue._connection.js.stream_info(streams.REQUESTS)).state.messages == 0


async def test_the_same_episode_is_stored_once(connect, request_of, trajectory_of, run_id):
    async with connect() as queue:
        await queue.ensure_run(run_id)
        for _ in range(3):
            await queue.publish_request(request_of("a"))
            await queue.publish_trajectory(trajectory_of("a"))
        assert len(await take_all(queue.requests())) == 1
        assert len(await take_all(queue.trajectories(run_id))) == 1


async def test_each_run_reads_its_own_trajectories(connect, trajectory_of, run_id):
    other = trajectory_pb2.Trajectory(
        run_id=f"{run_id}-other", episode=trajectory_pb2.EpisodeSpec(episode_id=f"{run_id}.other")
    )
    async with connect() as queue:
        await queue.publish_trajectory(trajectory_of("a"))
        await queue.publish_trajectory(other)
        await queue.ensure_run(run_id)
        await queue.ensure_run(f"{run_id}-other")
        assert await take_all(queue.trajectories(run_id)) == [f"{run_id}.a"]
        assert await take_all(queue.trajectories(f"{run_id}-other")) == [f"{run_id}.other"]


async def test_a_dropped_run_leaves_nothing(connect, request_of, trajectory_of, run_id):
    async with connect() as queue:
        await queue.ensure_run(run_id)
        await queue.publish_request(request_of("a"))
        await queue.publish_trajectory(trajectory_of("a"))
        await queue.drop_run(run_id)
        await queue.drop_run(run_id)
        for stream in (streams.REQUESTS, streams.TRAJECTORIES):
            info = await queue._connection.js.stream_info(stream)
            assert (info.state.messages, stream == streams.REQUESTS) == (0, info.state.consumer_count == 1)


async def test_a_consumer_that_vanished_is_set_up_again(connect, trajectory_of, run_id):
    async with connect() as queue:
        consumer = queue.trajectories(run_id)
        await queue.publish_trajectory(trajectory_of("a"))
        delivery = await consumer.next(5)
        await delivery.ack()
        await queue._connection.js.delete_consumer(streams.TRAJECTORIES, streams.trajectory_consumer(run_id))
        await queue.publish_trajectory(trajectory_of("b"))
        assert (await consumer.next(5)).message == trajectory_of("b")
        await queue.drop_run(run_id)


async def test_a_message_of_a_dead_worker_is_delivered_again(connect, request_of):
    async with connect(ack_wait_seconds=0.5) as queue:
        await queue.publish_request(request_of("a"))
        async with connect(ensure=False) as crashing:
            assert (await crashing.requests().next(2)).delivery == 1
        again = await queue.requests().next(3)
        assert (again.message, again.delivery) == (request_of("a"), 2)
        await again.ack()


async def test_heartbeats_hold_a_message_longer_than_its_ack_wait(connect, request_of):
    async with connect(ack_wait_seconds=0.6) as queue:
        await queue.publish_request(request_of("a"))
        consumer = queue.requests()
        delivery = await consumer.next(2)
        async with delivery.held():
            assert await consumer.next(2) is None
        await delivery.ack()
        assert await consumer.next(1) is None


async def test_a_message_handed_back_comes_again_after_its_delay(connect, request_of):
    async with connect() as queue:
        await queue.publish_request(request_of("a"))
        consumer = queue.requests()
        await (await consumer.next(2)).nak(0.5)
        assert await consumer.next(0.2) is None
        again = await consumer.next(2)
        assert again.delivery == 2
        await again.ack()


async def test_a_message_that_no_one_took_is_handed_back_on_close(connect, request_of):
    async with connect() as queue:
        async with connect(ensure=False) as leaving:
            consumer = leaving.requests()
            waiting = asyncio.create_task(consumer.next(10))
            await asyncio.sleep(0)
            assert await consumer.next(0.2) is None
            waiting.cancel()
            await asyncio.wait([waiting])
            await queue.publish_request(request_of("a"))
            await leaving._connection.nats.flush()
        again = await queue.requests().next(5)
        assert again.message == request_of("a")
        await again.ack()


async def test_many_waiters_share_one_consumer(connect, request_of):
    async with connect() as queue:
        consumer = queue.requests()
        waiting = [asyncio.create_task(consumer.next(10)) for _ in range(8)]
        for number in range(8):
            await queue.publish_request(request_of(str(number)))
        deliveries = await asyncio.gather(*waiting)
        assert {each.message.episode.episode_id for each in deliveries} == {
            request_of(str(number)).episode.episode_id for number in range(8)
        }
        for each in deliveries:
            await each.ack()


async def work_through(url: str, fates: list[str]) -> list[str]:
    """Publishes one request for each fate and returns those that were acknowledged."""
    queue = await Queue.connect(QueueConfig(url=url, max_deliver=10), name="test")
    await queue.ensure()
    mark = uuid.uuid4().hex
    for number in range(len(fates)):
        spec = trajectory_pb2.EpisodeSpec(episode_id=f"{mark}.{number}")
        await queue.publish_request(trajectory_pb2.RolloutRequest(run_id="fates", episode=spec))
    consumer, left, acknowledged = queue.requests(), list(fates), []
    while len(acknowledged) < len(fates):
        delivery = await consumer.next(5)
        if left and left.pop() == "nak":
            await delivery.nak()
        else:
            await delivery.ack()
            acknowledged.append(delivery.message.episode.episode_id)
    assert await consumer.next(0.05) is None
    await queue.close()
    return [episode.removeprefix(f"{mark}.") for episode in acknowledged]


def test_every_message_is_acknowledged_exactly_once_whatever_workers_do():
    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.sampled_from(["ack", "nak"]), min_size=1, max_size=6))
    def check(fates: list[str]) -> None:
        acknowledged = asyncio.run(work_through(nats.url, fates))
        assert sorted(acknowledged) == sorted(str(number) for number in range(len(fates)))

    with nats_server() as nats:
        check()


async def test_an_envelope_that_is_too_large_is_refused(connect, trajectory_of):
    trajectory = trajectory_of("a")
    trajectory.detail = "x" * MAX_ENVELOPE_BYTES
    async with connect() as queue:
        with pytest.raises(ServiceError) as caught:
            await queue.publish_trajectory(trajectory)
    assert caught.value.reason == "ENVELOPE_TOO_LARGE"


@pytest.mark.parametrize("run", ["", "a.b", "a b", "*", ">", "x" * 65])
async def test_a_run_id_that_is_no_subject_is_refused(connect, run):
    async with connect() as queue:
        with pytest.raises(ServiceError) as caught:
            await queue.ensure_run(run)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_RUN_ID")


async def test_nats_that_is_not_there_is_one_clear_line():
    url = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(
        ServiceError, match=rf"NATS at {url} cannot be reached \(.*Connect call failed.*\); start it"
    ) as caught:
        await Queue.connect(QueueConfig(url=url, connect_timeout=1), name="test")
    assert caught.value.reason == "QUEUE_UNAVAILABLE"
    assert "\n" not in str(caught.value)


async def test_reading_before_provisioning_says_so():
    with nats_server() as nats:
        queue = await Queue.connect(QueueConfig(url=nats.url), name="test")
        with pytest.raises(ServiceError, match="provision the queue first"):
            await queue.requests().next(5)
        await queue.close()


async def test_the_age_of_the_oldest_message_is_measured(connect, request_of):
    async with connect() as queue:
        await queue.publish_request(request_of("a"))
    async with connect() as queue:
        consumer = queue.requests()
        delivery = await consumer.next(2)
        await asyncio.sleep(1.1)
        assert await queue._age(streams.REQUESTS) >= 0.1
        await delivery.ack()
        assert await queue._age(streams.REQUESTS) == 0
    assert metrics.OLDEST_PENDING.labels(streams.REQUESTS)._value.get() >= 0


def version_of(number: int, run: str = "run") -> policy_pb2.PolicyVersion:
    return policy_pb2.PolicyVersion(version=number, uri=f"file:///policies/{number}", run_id=run)


@pytest.fixture
async def empty():
    """A queue on a NATS of its own."""
    with nats_server() as nats:
        queue = await Queue.connect(QueueConfig(url=nats.url), name="test")
        await queue.ensure()
        yield queue
        await queue.close()


async def test_versions_are_listed_by_number(empty):
    assert await empty.latest_version() is None
    for number in (2, 10, 9):
        await empty.publish_version(version_of(number))
    assert [each.version for each in await empty.versions()] == [2, 9, 10]
    assert (await empty.latest_version()).version == 10


async def test_a_version_number_is_used_once(empty):
    await empty.publish_version(version_of(1))
    await empty.publish_version(version_of(1))
    with pytest.raises(ServiceError) as caught:
        await empty.publish_version(version_of(1, run="another"))
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.ALREADY_EXISTS, "VERSION_USED")


async def test_a_watcher_sees_the_highest_version_at_once_and_then_each_new_one(empty):
    for number in (1, 3, 2):
        await empty.publish_version(version_of(number))
    watching = empty.watch_versions()
    assert (await anext(watching)).version == 3
    for number in (4, 5):
        await empty.publish_version(version_of(number))
    assert [(await anext(watching)).version for _ in range(2)] == [4, 5]
    await watching.aclose()


async def test_each_replica_has_one_serving_state(empty):
    for replica, version in (("10.0.0.1:50052", 1), ("inference-1", 1), ("10.0.0.1:50052", 2)):
        await empty.put_serving(policy_pb2.ServingStatus(replica=replica, version=version))
    found = {each.replica: each.version for each in await empty.serving()}
    assert found == {"10.0.0.1:50052": 2, "inference-1": 1}
    watching = empty.watch_serving()
    assert {(await anext(watching)).replica for _ in range(2)} == set(found)
    await empty.put_serving(policy_pb2.ServingStatus(replica="inference-1", version=2))
    assert (await anext(watching)).version == 2
    await watching.aclose()
