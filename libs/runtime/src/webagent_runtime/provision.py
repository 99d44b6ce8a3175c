"""`webagent-provision`: makes the queue's streams, consumers and bucket, or updates them. Safe to run again and again.

For whoever must have them before anything scales on them, and where services may not make them. A server that is not
there yet is waited for; one that says no ends the command with its words.
"""

import structlog
from pydantic import Field
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_before_delay, wait_fixed

from webagent_runtime.config import Config, QueueConfig, TelemetryConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue
from webagent_runtime.service import run_service

log = structlog.get_logger()

RETRY_SECONDS = 2.0


class ProvisionConfig(Config):
    """Which queue, and how long it may take to come up."""

    queue: QueueConfig = QueueConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    wait_seconds: float = Field(default=300.0, ge=0, description="how long a server that is down is waited for")


async def provision(config: ProvisionConfig) -> None:
    """Brings the queue to what the configuration says."""
    queue = await _connected(config)
    try:
        await queue.ensure()
    finally:
        await queue.close()
    log.info("queue_provisioned", replicas=config.queue.replicas)


async def _connected(config: ProvisionConfig) -> Queue:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(ServiceError),
        stop=stop_before_delay(config.wait_seconds),
        wait=wait_fixed(RETRY_SECONDS),
        before_sleep=_announce,
        reraise=True,
    )
    queue: Queue = await retrying(Queue.connect, config.queue, name="provision")
    return queue


def _announce(state: RetryCallState) -> None:
    assert state.outcome is not None
    log.warning("queue_not_there_yet", error=str(state.outcome.exception()))


def main(arguments: list[str] | None = None) -> None:
    """Console entry."""
    run_service(ProvisionConfig, provision, env_prefix="WEBAGENT_PROVISION", name="provision", arguments=arguments)


if __name__ == "__main__":
    main()
