"""The queue as services see it.

Publishing returns once the message is stored, and stores it once however often it is retried. Reading survives restarts
of the server. Every wait is bounded by QueueConfig.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial

import grpc
import nats.errors
import nats.js.errors
import structlog
from google.protobuf.message import Message
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2

from webagent_runtime import metrics
from webagent_runtime.config import QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import streams
from webagent_runtime.queue.connection import TRANSIENT, Connection
from webagent_runtime.queue.consumer import Consumer
from webagent_runtime.queue.dead_letters import DeadLetters, OnDead
from webagent_runtime.queue.tail import scan, tail

log = structlog.get_logger()

MAX_ENVELOPE_BYTES = 256 * 1024
_MEASURE_SECONDS = 5.0


class Queue:
    """Requests, trajectories, policy versions, serving states and dead letters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dead_letters = DeadLetters(connection)
        self._consumers: list[Consumer[trajectory_pb2.RolloutRequest] | Consumer[trajectory_pb2.Trajectory]] = []
        self._measuring = asyncio.create_task(self._measure())

    @classmethod
    async def connect(cls, config: QueueConfig, *, name: str) -> "Queue":
        """Connects under `name`; unreachable is a ServiceError of one line."""
        return cls(await Connection.open(config, name))

    async def close(self) -> None:
        """Hands back what was not taken and disconnects."""
        self._measuring.cancel()
        await asyncio.wait({self._measuring})
        for consumer in self._consumers:
            await consumer.close()
        await self._connection.close()

    async def ensure(self) -> None:
        """Creates or updates all streams, consumers and the bucket. Idempotent."""
        await self._connection.retry("set up the streams", streams.ensure_streams, self._connection)

    async def ensure_run(self, run_id: str) -> None:
        """Creates the run's trajectory consumer. Idempotent."""
        await self._connection.retry("set up the run's consumer", self._ensure_trajectories, run_id)

    async def drop_run(self, run_id: str) -> None:
        """Purges what a finished run left on the streams. Idempotent."""
        await streams.purge(self._connection, streams.REQUESTS, streams.request_subject(run_id))
        await streams.purge(self._connection, streams.TRAJECTORIES, streams.trajectory_subject(run_id))
        consumer = streams.trajectory_consumer(run_id)
        delete = self._connection.js.delete_consumer
        try:
            await self._connection.retry(f"delete consumer {consumer}", delete, streams.TRAJECTORIES, consumer)
        except nats.js.errors.NotFoundError:
            log.debug("run_dropped_already", run_id=run_id)

    async def publish_request(self, request: trajectory_pb2.RolloutRequest) -> None:
        """Asks for one episode."""
        subject = streams.request_subject(request.run_id)
        await self._publish(subject, request, streams.REQUESTS, request.episode.episode_id)

    async def publish_trajectory(self, trajectory: trajectory_pb2.Trajectory) -> None:
        """Reports an episode's outcome. Move long turns to a payload first."""
        subject = streams.trajectory_subject(trajectory.run_id)
        await self._publish(subject, trajectory, streams.TRAJECTORIES, trajectory.episode.episode_id)

    def requests(self) -> Consumer[trajectory_pb2.RolloutRequest]:
        """Requests of all runs, shared with all other replicas of rollout."""
        consumer = Consumer(
            self._connection,
            trajectory_pb2.RolloutRequest,
            stream=streams.REQUESTS,
            name=streams.REQUEST_CONSUMER,
            provision=self._ensure_requests,
            bury=self._dead_letters.bury,
        )
        self._consumers.append(consumer)
        return consumer

    def trajectories(self, run_id: str) -> Consumer[trajectory_pb2.Trajectory]:
        """The run's trajectories."""
        consumer = Consumer(
            self._connection,
            trajectory_pb2.Trajectory,
            stream=streams.TRAJECTORIES,
            name=streams.trajectory_consumer(run_id),
            provision=partial(self._ensure_trajectories, run_id),
            bury=self._dead_letters.bury,
        )
        self._consumers.append(consumer)
        return consumer

    async def publish_version(self, version: policy_pb2.PolicyVersion) -> None:
        """Announces a policy version. A number that was used for anything else is refused."""
        subject = streams.version_subject(version.version)
        payload = version.SerializeToString(deterministic=True)
        if await self._connection.publish(subject, payload, stream=streams.POLICIES, if_absent=True):
            return
        stored = await scan(self._connection, streams.POLICIES, subject)
        # Equal bytes: an earlier try of this very call was stored and its acknowledgement lost.
        if not stored or stored[-1].data != payload:
            message = f"policy version {version.version} was published before; numbers are never used twice"
            raise ServiceError(grpc.StatusCode.ALREADY_EXISTS, "VERSION_USED", message)

    async def versions(self) -> list[policy_pb2.PolicyVersion]:
        """All policy versions, lowest number first."""
        records = await scan(self._connection, streams.POLICIES, streams.version_subject("*"))
        return sorted((policy_pb2.PolicyVersion.FromString(r.data) for r in records), key=lambda each: each.version)

    async def latest_version(self) -> policy_pb2.PolicyVersion | None:
        """The policy version with the highest number."""
        versions = await self.versions()
        return versions[-1] if versions else None

    async def watch_versions(self) -> AsyncIterator[policy_pb2.PolicyVersion]:
        """The highest version at once, if there is one, then each new one."""
        subject = streams.version_subject("*")
        records = await scan(self._connection, streams.POLICIES, subject)
        versions = [policy_pb2.PolicyVersion.FromString(record.data) for record in records]
        if versions:
            yield max(versions, key=lambda version: version.version)
        start = records[-1].sequence + 1 if records else 1
        async for record in tail(self._connection, streams.POLICIES, subject, start):
            yield policy_pb2.PolicyVersion.FromString(record.data)

    async def put_serving(self, status: policy_pb2.ServingStatus) -> None:
        """Says what a replica serves."""
        subject = streams.serving_subject(status.replica)
        await self._connection.publish(subject, status.SerializeToString(), stream=streams.POLICIES)

    async def serving(self) -> list[policy_pb2.ServingStatus]:
        """What each replica said last."""
        records = await scan(self._connection, streams.POLICIES, streams.serving_subject("*"))
        return [policy_pb2.ServingStatus.FromString(record.data) for record in records]

    async def watch_serving(self) -> AsyncIterator[policy_pb2.ServingStatus]:
        """What each replica said last, then each change."""
        async for record in tail(self._connection, streams.POLICIES, streams.serving_subject("*"), 1):
            yield policy_pb2.ServingStatus.FromString(record.data)

    async def run_dead_letters(self, on_dead: OnDead, stop: asyncio.Event) -> None:
        """Keeps dead messages and hands every letter to `on_dead`, old ones too, until `stop`.

        Any number of processes may run this. `on_dead` must be idempotent, and ignore runs that are not its own.
        """
        await self._dead_letters.run(on_dead, stop)

    async def dead_letters(self) -> list[trajectory_pb2.DeadLetter]:
        """All dead letters, oldest first."""
        return await self._dead_letters.letters()

    async def replay(self, letter: trajectory_pb2.DeadLetter) -> None:
        """Puts a dead message back on its stream and drops the letter."""
        await self._dead_letters.replay(letter)

    async def _ensure_requests(self) -> None:
        wanted = streams.request_consumer_config(self._connection.config)
        await streams.ensure_consumer(self._connection, streams.REQUESTS, wanted)

    async def _ensure_trajectories(self, run_id: str) -> None:
        wanted = streams.trajectory_consumer_config(self._connection.config, run_id)
        await streams.ensure_consumer(self._connection, streams.TRAJECTORIES, wanted)

    async def _publish(self, subject: str, message: Message, stream: str, message_id: str) -> None:
        if not message_id:
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "episode_id is empty")
        payload = message.SerializeToString()
        if len(payload) > MAX_ENVELOPE_BYTES:
            text = f"{message_id}: {len(payload)} bytes are more than an envelope's {MAX_ENVELOPE_BYTES}"
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "ENVELOPE_TOO_LARGE", text)
        await self._connection.publish(subject, payload, stream=stream, message_id=message_id)

    async def _measure(self) -> None:
        """Keeps the queue's gauges current for as long as the connection is open."""
        while True:
            try:
                for stream in (streams.REQUESTS, streams.TRAJECTORIES):
                    metrics.OLDEST_PENDING.labels(stream).set(await self._age(stream))
                info = await self._connection.once(self._connection.js.stream_info, streams.DEAD_LETTERS)
                metrics.DEAD_LETTERS.set(info.state.messages)
            except (nats.js.errors.APIError, *TRANSIENT) as error:
                log.debug("queue_not_measured", error=str(error))
            await asyncio.sleep(_MEASURE_SECONDS)

    async def _age(self, stream: str) -> float:
        answer = await self._connection.request(f"$JS.API.STREAM.INFO.{stream}")
        state = json.loads(answer.data).get("state", {})
        if not state.get("messages"):
            return 0.0
        # Nanoseconds are more than fromisoformat takes.
        first = datetime.fromisoformat(state["first_ts"][:19] + "+00:00")
        return max(0.0, time.time() - first.timestamp())
