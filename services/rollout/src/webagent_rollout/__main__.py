"""webagent-rollout: starts the rollout service."""

import asyncio
from importlib.metadata import version

import structlog
from webagent.rollout.v1 import rollout_pb2_grpc
from webagent_runtime.metrics import SESSION_CAPACITY
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Queue
from webagent_runtime.server import Server
from webagent_runtime.service import run_service

from webagent_rollout.config import RolloutConfig
from webagent_rollout.player import Player
from webagent_rollout.servicer import RolloutServicer
from webagent_rollout.worker import Worker

log = structlog.get_logger()

SERVICE = "webagent.rollout.v1.RolloutService"
# Of the time to drain: what remains is for handing back what was not finished, and for closing its sessions.
FINISHING_SHARE = 0.7


async def serve(config: RolloutConfig) -> None:
    """Serves RunEpisode, and plays the queue's requests if there is a queue, until told to stop."""
    payloads = PayloadStore(config.payloads)
    player = Player(config, payloads)
    servicer = RolloutServicer(player, capacity=config.concurrency)
    queue = await Queue.connect(config.queue, name="rollout") if config.queue else None
    worker = await _worker(config, player, queue, payloads) if queue else None
    server = Server(config.server, name="rollout", version=version("webagent-rollout"))
    server.add(rollout_pb2_grpc.add_RolloutServiceServicer_to_server, servicer, service=SERVICE, scope="rollout")
    await server.start()
    taking = asyncio.create_task(worker.run(), name="requests") if worker else None

    async def drain() -> None:
        seconds = config.server.drain_seconds * FINISHING_SHARE
        draining = [servicer.drain(seconds)] + ([worker.drain(seconds)] if worker else [])
        await asyncio.gather(*draining)

    SESSION_CAPACITY.set(config.concurrency * (2 if worker else 1))
    server.set_ready(True)
    try:
        await server.run(drain)
    finally:
        if taking is not None:
            taking.cancel()
            await asyncio.wait([taking])
        await player.close()
        if queue is not None:
            await queue.close()


async def _worker(config: RolloutConfig, player: Player, queue: Queue, payloads: PayloadStore) -> Worker:
    await queue.ensure()
    return Worker(
        player,
        queue.requests,
        queue,
        payloads,
        concurrency=config.concurrency,
    )


def main() -> None:
    """Runs the service from the command line."""
    run_service(RolloutConfig, serve, env_prefix="WEBAGENT_ROLLOUT", name="rollout")


if __name__ == "__main__":
    main()
