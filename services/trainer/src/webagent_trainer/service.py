"""Puts the parts together: the process group, the queue, the supervisor and the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from importlib.metadata import version

import structlog
from webagent.trainer.v1 import trainer_pb2_grpc
from webagent_runtime.config import ConfigError
from webagent_runtime.queue import Queue
from webagent_runtime.server import Server

from webagent_trainer.board import State
from webagent_trainer.config import RunConfig, TrainerConfig
from webagent_trainer.crew import Crew, follow, join
from webagent_trainer.servicer import SERVICE, TrainerServicer
from webagent_trainer.supervisor import Supervisor

log = structlog.get_logger()


async def serve_rank(config: TrainerConfig) -> None:
    """Serves on rank 0; on other ranks does as rank 0 says."""
    if config.run is not None:
        check_run(config.run)
    if join(config.rank_seconds) == 0:
        await _serve(config)
    else:
        follow()


def check_run(run: RunConfig) -> None:
    """ConfigError if what the run reads is not there."""
    if not (run.model / "config.json").is_file():
        raise ConfigError(f"run.model {run.model} holds no model (no config.json); prepare it or set run.model")
    if run.bc is not None and not run.bc.demonstrations.is_file():
        raise ConfigError(f"run.bc.demonstrations {run.bc.demonstrations} does not exist; record demonstrations first")


async def _serve(config: TrainerConfig) -> None:
    crew = Crew()
    queue = await Queue.connect(config.queue, name="trainer")
    supervisor = Supervisor(queue, crew)
    server = Server(config.server, name="trainer", version=version("webagent-trainer"))
    register = trainer_pb2_grpc.add_TrainerServiceServicer_to_server
    server.add(register, TrainerServicer(supervisor), service=SERVICE, scope="trainer")
    try:
        await server.start()
        server.set_ready(True)
        serving = asyncio.create_task(server.run(supervisor.stop))
        if config.run is None:
            await serving
            return
        run = await supervisor.start(config.run.run_directory.name, config.run)
        await asyncio.wait({serving, run.task}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await server.stop(1.0)
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        if run.board.status.state is State.FAILED:
            sys.exit(1)
    finally:
        await supervisor.stop()
        crew.dismiss()
        await queue.close()
