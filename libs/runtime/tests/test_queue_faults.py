"""What the queue does when the server dies, its streams fill up, or messages are poison."""

import asyncio

import pytest
from certificates import Authority
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime.config import ClientTlsConfig, QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue, streams
from webagent_runtime.testing import free_port, nats_server, nats_server_path


@pytest.fixture
def nats():
    """These tests kill their server, so each has one of its own."""
    with nats_server() as server:
        yield server


async def test_pulling_goes_on_after_a_restart_of_the_server(connect, nats, request_of):
    async with connect() as queue:
        consumer = queue.requests()
        waiting = asyncio.create_task(consumer.next(30))
        assert await asyncio.to_thread(nats.restart) is None
        await queue.publish_request(request_of("a"))
        delivery = await waiting
        assert delivery.message == request_of("a")
        await delivery.ack()


async def test_renewed_certificates_are_used_when_the_queue_connects_again(tmp_path, request_of):
    def issued():
        authority = Authority(tmp_path, "authority")
        return authority.ca_file, *authority.issue("nats"), *authority.issue("client")

    ca_file, cert, key, cert_file, key_file = issued()
    shown = ("--tlscert", str(cert), "--tlskey", str(key), "--tlscacert", str(ca_file))
    with nats_server("--tlsverify", *shown) as nats:
        tls = ClientTlsConfig(ca_file=ca_file, cert_file=cert_file, key_file=key_file)
        queue = await Queue.connect(QueueConfig(url=nats.url, tls=tls), name="test")
        await queue.ensure()
        issued()
        await asyncio.to_thread(nats.restart)
        await queue.publish_request(request_of("a"))
        await queue.close()


async def test_a_server_whose_jetstream_does_not_answer_is_asked_again_until_the_bound(run_id):
    port = free_port()
    command = (str(nats_server_path()), "-a", "127.0.0.1", "-p", str(port))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        queue = await Queue.connect(QueueConfig(url=f"nats://127.0.0.1:{port}", publish_timeout=0.5), name="test")
        for setting_up in (queue.ensure(), queue.ensure_run(run_id)):
            with pytest.raises(ServiceError, match=r"within 0.5 s") as caught:
                await setting_up
            assert caught.value.reason == "QUEUE_UNAVAILABLE"
        await queue.close()
    finally:
        process.kill()
        await process.wait()


async def test_a_message_can_be_acknowledged_across_a_restart(connect, nats, request_of):
    async with connect(ack_wait_seconds=10) as queue:
        await queue.publish_request(request_of("a"))
        consumer = queue.requests()
        delivery = await consumer.next(2)
        async with delivery.held():
            await asyncio.to_thread(nats.kill)
            acknowledging = asyncio.create_task(delivery.ack())
            await asyncio.to_thread(nats.start)
            await acknowledging
        assert (await queue._connection.js.stream_info(streams.REQUESTS)).state.messages == 0


async def test_a_publish_while_the_server_is_down_arrives_once(connect, nats, trajectory_of, run_id):
    async with connect() as queue:
        await queue.ensure_run(run_id)
        await asyncio.to_thread(nats.kill)
        publishing = [asyncio.create_task(queue.publish_trajectory(trajectory_of(str(n % 5)))) for n in range(10)]
        await asyncio.to_thread(nats.start)
        await asyncio.gather(*publishing)
        assert (await queue._connection.js.stream_info(streams.TRAJECTORIES)).state.messages == 5


async def test_a_run_is_dropped_across_a_restart_of_the_server(connect, nats, request_of, trajectory_of, run_id):
    async with connect(request_timeout=0.2) as queue:
        await queue.ensure_run(run_id)
        await queue.publish_request(request_of("a"))
        await queue.publish_trajectory(trajectory_of("a"))
        await asyncio.to_thread(nats.kill)
        dropping = asyncio.create_task(queue.drop_run(run_id))
        done, _ = await asyncio.wait([dropping], timeout=0.5)
        assert not done
        await asyncio.to_thread(nats.start)
        await dropping
        for stream in (streams.REQUESTS, streams.TRAJECTORIES):
            assert (await queue._connection.js.stream_info(stream)).state.messages == 0


async def test_a_publish_gives_up_after_its_bound(connect, nats, trajectory_of):
    async with connect(publish_timeout=0.5) as queue:
        await asyncio.to_thread(nats.kill)
        with pytest.raises(ServiceError, match=r"within 0.5 s") as caught:
            await queue.publish_trajectory(trajectory_of("a"))
    assert caught.value.reason == "QUEUE_UNAVAILABLE"
    assert caught.value.retry_after is not None


async def test_watching_versions_goes_on_after_a_restart(connect, nats):
    async with connect() as queue:
        await queue.publish_version(policy_pb2.PolicyVersion(version=1))
        watching = queue.watch_versions()
        assert (await anext(watching)).version == 1
        following = asyncio.create_task(anext(watching))
        await asyncio.to_thread(nats.restart)
        await queue.publish_version(policy_pb2.PolicyVersion(version=2))
        assert (await asyncio.wait_for(following, 20)).version == 2
        await watching.aclose()


async def test_a_full_stream_slows_its_publisher_and_loses_nothing(connect, trajectory_of, run_id):
    async with connect(trajectories_max_bytes=8_000) as queue:
        await queue.ensure_run(run_id)
        trajectories = [trajectory_of(str(number)) for number in range(12)]
        for each in trajectories:
            each.detail = "x" * 1000
        publishing = asyncio.create_task(publish_in_turn(queue, trajectories))
        done, _ = await asyncio.wait([publishing], timeout=0.5)
        assert not done
        consumer, taken = queue.trajectories(run_id), []
        while len(taken) < len(trajectories):
            delivery = await consumer.next(10)
            taken.append(delivery.message)
            await delivery.ack()
        await publishing
    assert taken == trajectories


async def publish_in_turn(queue, trajectories):
    for each in trajectories:
        await queue.publish_trajectory(each)


async def test_a_stream_that_stays_full_is_named(connect, trajectory_of):
    trajectory = trajectory_of("a")
    trajectory.detail = "x" * 10_000
    async with connect(trajectories_max_bytes=8_000, publish_timeout=0.3) as queue:
        with pytest.raises(ServiceError) as caught:
            await queue.publish_trajectory(trajectory)
    assert caught.value.reason == "QUEUE_FULL"


class Burials:
    """Collects letters and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.letters: list[trajectory_pb2.DeadLetter] = []
        self._grown = asyncio.Condition()

    async def __call__(self, letter: trajectory_pb2.DeadLetter) -> None:
        async with self._grown:
            self.letters.append(letter)
            self._grown.notify_all()

    async def wait(self, number: int) -> None:
        async with asyncio.timeout(20), self._grown:
            await self._grown.wait_for(lambda: len(self.letters) >= number)


async def test_a_request_that_every_worker_fails_becomes_a_dead_letter(connect, request_of):
    async with connect(max_deliver=2) as queue:
        await queue.publish_request(request_of("a"))
        consumer = queue.requests()
        for _ in range(2):
            await (await consumer.next(5)).nak()
        burials, stop = Burials(), asyncio.Event()
        worker = asyncio.create_task(queue.run_dead_letters(burials, stop))
        # The server notices that the deliveries are used up when the next message is asked for.
        assert await consumer.next(0.5) is None
        await burials.wait(1)
        stop.set()
        await worker
        letter = burials.letters[0]
        assert (letter.reason, letter.deliveries, letter.stream) == ("MAX_DELIVERIES", 2, "REQUESTS")
        assert trajectory_pb2.RolloutRequest.FromString(letter.payload) == request_of("a")
        assert (await queue._connection.js.stream_info(streams.REQUESTS)).state.messages == 0
        assert await queue.dead_letters() == burials.letters


async def test_a_replayed_letter_is_a_message_again_and_no_letter(connect, request_of):
    async with connect(max_deliver=1) as queue:
        await queue.publish_request(request_of("a"))
        consumer = queue.requests()
        await (await consumer.next(5)).terminate("no good")
        (letter,) = await queue.dead_letters()
        assert letter.reason == "TERMINATED"
        await queue.replay(letter)
        assert await queue.dead_letters() == []
        delivery = await consumer.next(5)
        assert delivery.message == request_of("a")
        await delivery.ack()


async def test_bytes_that_are_no_message_are_dead_lettered_and_never_returned(connect, request_of, run_id):
    async with connect() as queue:
        js = queue._connection.js
        await js.publish(streams.request_subject(run_id), b"\xff\xff\xff")
        await queue.publish_request(request_of("a"))
        delivery = await queue.requests().next(5)
        assert delivery.message == request_of("a")
        await delivery.ack()
        (letter,) = await queue.dead_letters()
        assert (letter.payload, letter.reason) == (b"\xff\xff\xff", "TERMINATED")


async def test_a_worker_that_starts_late_still_sees_every_letter(connect, request_of):
    async with connect() as queue:
        consumer = queue.requests()
        for episode in ("a", "b"):
            await queue.publish_request(request_of(episode))
            await (await consumer.next(5)).terminate("no good")
        for _ in range(2):
            burials, stop = Burials(), asyncio.Event()
            worker = asyncio.create_task(queue.run_dead_letters(burials, stop))
            await burials.wait(2)
            stop.set()
            await worker
            assert [letter.sequence for letter in burials.letters] == [1, 2]


async def test_an_error_in_on_dead_ends_the_worker(connect, request_of):
    async def fail(_letter: trajectory_pb2.DeadLetter) -> None:
        raise ValueError("a bug")

    async with connect() as queue:
        await queue.publish_request(request_of("a"))
        await (await queue.requests().next(5)).terminate("no good")
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.wait_for(queue.run_dead_letters(fail, asyncio.Event()), 20)


async def test_counts_are_conserved_through_crashes_poison_and_a_restart(connect, nats, request_of):
    """Each message ends acknowledged or dead, none as both and none as neither."""
    total = 30
    async with connect(ack_wait_seconds=0.4, max_deliver=2) as queue:
        burials, stop = Burials(), asyncio.Event()
        worker = asyncio.create_task(queue.run_dead_letters(burials, stop))
        for number in range(total):
            await queue.publish_request(request_of(str(number)))
        acknowledged: set[str] = set()
        consumer = queue.requests()
        handled = 0
        while len(acknowledged) + len(burials.letters) < total:
            delivery = await consumer.next(1)
            if delivery is None:
                continue
            handled += 1
            if handled == 10:
                await asyncio.to_thread(nats.restart)
            number = int(delivery.message.episode.episode_id.rpartition(".")[2])
            if number % 5 == 1:
                continue  # This worker dies: no ack, no nak.
            if number % 5 == 2:
                await delivery.terminate("poison")
                continue
            if number % 5 == 3 and delivery.delivery == 1:
                await delivery.nak()
                continue
            await delivery.ack()
            # Twice for the message whose acknowledgement the crash swallowed.
            acknowledged.add(delivery.message.episode.episode_id)
        stop.set()
        await worker
        assert (await queue._connection.js.stream_info(streams.REQUESTS)).state.messages == 0
        dead = [
            trajectory_pb2.RolloutRequest.FromString(letter.payload).episode.episode_id for letter in burials.letters
        ]
    assert len(dead) == len(set(dead)) == 12
    assert acknowledged.isdisjoint(dead)
    assert acknowledged | set(dead) == {request_of(str(number)).episode.episode_id for number in range(total)}


async def test_a_queue_that_nobody_can_reach_any_more_still_closes(nats):
    queue = await Queue.connect(QueueConfig(url=nats.url, request_timeout=1), name="test")
    await queue.ensure()
    await asyncio.to_thread(nats.kill)
    await asyncio.wait_for(queue.close(), 10)
