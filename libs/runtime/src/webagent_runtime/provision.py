"""`webagent-provision`: makes the queue's streams, consumers and bucket, or updates them. Safe to run again and again.

For whoever must have them before anything scales on them, and where services may not make them. A server that is not
there yet is waited for; one that says no ends the command with its words.
"""

import asyncio

import structlog
from pydantic import Field

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
    loop = asyncio.get_running_loop()
    end = loop.time() + config.wait_seconds
    while True:
        try:
            return await Queue.connect(config.queue, name="provision")
        except ServiceError as error:
            if loop.time() + RETRY_SECONDS > end:
                raise
            log.warning("queue_not_there_yet", error=str(error))
        await asyncio.sleep(RETRY_SECONDS)


def main(arguments: list[str] | None = None) -> None:
    """Console entry."""
    run_service(ProvisionConfig, provision, env_prefix="WEBAGENT_PROVISION", name="provision", arguments=arguments)


if __name__ == "__main__":
    main()
