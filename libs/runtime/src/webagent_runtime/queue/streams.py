"""The streams, their subjects and consumers, and how they come to be.

    REQUESTS      work queue   webagent.requests.<run>          consumer "rollout", shared by all replicas
    TRAJECTORIES  work queue   webagent.trajectories.<run>      one consumer "trainer-<run>" per run
    ADVISORIES    work queue   what the server says of REQUESTS' and TRAJECTORIES' dead messages
    DEAD_LETTERS  limits       webagent.dead.<stream>.<sequence>
    KV_policies   limits       versions.<n>, serving.<replica>  (a NATS key-value bucket)

All of them refuse new messages when full and never drop an accepted one.
"""

import re
from functools import partial
from typing import Any

import grpc
import nats.js.errors
import structlog
from nats.js import api

from webagent_runtime.config import ConfigError, QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue.connection import TRANSIENT, Connection

log = structlog.get_logger()

REQUESTS = "REQUESTS"
TRAJECTORIES = "TRAJECTORIES"
ADVISORIES = "ADVISORIES"
DEAD_LETTERS = "DEAD_LETTERS"
POLICIES = "KV_policies"
REQUEST_CONSUMER = "rollout"
ADVISORY_CONSUMER = "dead-letters"

_ADVISORY = "$JS.EVENT.ADVISORY.CONSUMER"
_ADVISORIES_MAX_BYTES = 16 * 1024 * 1024
_POLICIES_MAX_BYTES = 16 * 1024 * 1024
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def request_subject(run_id: str) -> str:
    """Where a run's requests go."""
    return f"webagent.requests.{_checked(run_id)}"


def trajectory_subject(run_id: str) -> str:
    """Where a run's trajectories go."""
    return f"webagent.trajectories.{_checked(run_id)}"


def trajectory_consumer(run_id: str) -> str:
    """The consumer that reads a run's trajectories."""
    return f"trainer-{_checked(run_id)}"


def dead_subject(stream: str, sequence: int) -> str:
    """Where the dead letter of one message is kept; there is at most one."""
    return f"webagent.dead.{stream}.{sequence}"


def version_subject(version: int | str) -> str:
    """The key of a policy version; "*" for all."""
    return f"$KV.policies.versions.{version}"


def serving_subject(replica: str) -> str:
    """The key of what a replica serves; "*" for all."""
    return f"$KV.policies.serving.{replica if replica == '*' else re.sub(r'[^A-Za-z0-9_=-]', '_', replica)}"


async def ensure_streams(connection: Connection) -> None:
    """Creates what is missing and updates what differs. Idempotent. One attempt, as `ensure_consumer`."""
    for wanted in _streams(connection.config):
        await _ensure_stream(connection.js, wanted)
    await ensure_consumer(connection, REQUESTS, request_consumer_config(connection.config))
    await ensure_consumer(connection, ADVISORIES, _advisory_consumer_config(connection.config))


async def ensure_consumer(connection: Connection, stream: str, wanted: api.ConsumerConfig) -> None:
    """Creates a consumer, or updates it to `wanted`. Idempotent. One attempt, which may end with a TRANSIENT error."""
    try:
        await connection.js.add_consumer(stream, wanted)
    except TRANSIENT:
        raise
    except nats.js.errors.NotFoundError:
        message = f"NATS has no stream {stream}; provision the queue first"
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "QUEUE_NOT_PROVISIONED", message) from None
    except nats.js.errors.APIError as error:
        message = f"consumer {wanted.durable_name} of stream {stream} cannot be set up: {error.description}"
        raise ConfigError(message) from None


async def purge(connection: Connection, stream: str, subject: str) -> None:
    """Removes all messages on `subject`. Idempotent."""
    await connection.retry(f"purge {subject}", partial(connection.js.purge_stream, subject=subject), stream)


def request_consumer_config(config: QueueConfig) -> api.ConsumerConfig:
    """Requests are tried `max_deliver` times."""
    return api.ConsumerConfig(
        durable_name=REQUEST_CONSUMER,
        ack_wait=config.ack_wait_seconds,
        max_deliver=config.max_deliver,
        max_ack_pending=config.max_ack_pending,
    )


def trajectory_consumer_config(config: QueueConfig, run_id: str) -> api.ConsumerConfig:
    """Trajectories are redelivered without limit."""
    return api.ConsumerConfig(
        durable_name=trajectory_consumer(run_id),
        filter_subject=trajectory_subject(run_id),
        ack_wait=config.ack_wait_seconds,
        max_deliver=-1,
        max_ack_pending=config.max_ack_pending,
    )


def _advisory_consumer_config(config: QueueConfig) -> api.ConsumerConfig:
    return api.ConsumerConfig(
        durable_name=ADVISORY_CONSUMER, ack_wait=config.ack_wait_seconds, max_deliver=-1, max_ack_pending=64
    )


def _streams(config: QueueConfig) -> list[api.StreamConfig]:
    advisories = [
        f"{_ADVISORY}.{kind}.{stream}.*"
        for kind in ("MAX_DELIVERIES", "MSG_TERMINATED")
        for stream in (REQUESTS, TRAJECTORIES)
    ]
    work, limits = api.RetentionPolicy.WORK_QUEUE, api.RetentionPolicy.LIMITS
    policies = _stream(config, POLICIES, ["$KV.policies.>"], limits, _POLICIES_MAX_BYTES)
    return [
        _stream(config, REQUESTS, ["webagent.requests.*"], work, config.requests_max_bytes),
        _stream(config, TRAJECTORIES, ["webagent.trajectories.*"], work, config.trajectories_max_bytes),
        _stream(config, ADVISORIES, advisories, work, _ADVISORIES_MAX_BYTES),
        _stream(config, DEAD_LETTERS, ["webagent.dead.*.*"], limits, config.dead_letters_max_bytes),
        policies.evolve(max_msgs_per_subject=1, allow_rollup_hdrs=True, allow_direct=True, deny_delete=True),
    ]


def _stream(
    config: QueueConfig, name: str, subjects: list[str], retention: api.RetentionPolicy, max_bytes: int
) -> api.StreamConfig:
    return api.StreamConfig(
        name=name,
        subjects=subjects,
        retention=retention,
        discard=api.DiscardPolicy.NEW,
        storage=api.StorageType.FILE,
        max_bytes=max_bytes,
        num_replicas=config.replicas,
        duplicate_window=config.duplicate_window_seconds,
    )


async def _ensure_stream(js: Any, wanted: api.StreamConfig) -> None:
    try:
        current = (await js.stream_info(wanted.name)).config
    except nats.js.errors.NotFoundError:
        try:
            await js.add_stream(wanted)
        except TRANSIENT:
            raise
        except nats.js.errors.APIError as error:
            raise ConfigError(f"stream {wanted.name} cannot be created: {error.description}") from None
        log.info("stream_created", stream=wanted.name)
        return
    fields = ("subjects", "retention", "discard", "storage", "max_bytes", "num_replicas", "duplicate_window")
    differing = {
        field: (getattr(current, field), getattr(wanted, field))
        for field in fields
        if getattr(current, field) != getattr(wanted, field)
    }
    if not differing:
        return
    try:
        await js.update_stream(current.evolve(**{field: new for field, (_, new) in differing.items()}))
    except TRANSIENT:
        raise
    except nats.js.errors.APIError as error:
        shown = ", ".join(f"{field} is {_show(old)}, wanted {_show(new)}" for field, (old, new) in differing.items())
        message = f"stream {wanted.name} exists with another configuration: {shown}; NATS says: {error.description}"
        raise ConfigError(message) from None
    log.info("stream_updated", stream=wanted.name, fields=sorted(differing))


def _show(value: object) -> str:
    return str(getattr(value, "value", value))


def _checked(run_id: str) -> str:
    if not RUN_ID.fullmatch(run_id):
        message = f"run id {run_id!r} must be 1 to 64 characters of A-Z, a-z, 0-9, '_' and '-'"
        raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_RUN_ID", message)
    return run_id
