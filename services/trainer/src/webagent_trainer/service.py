"""Puts the parts together: the process group, the supervisor and the server."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from webagent.trainer.v1 import trainer_pb2_grpc
from webagent_runtime.server import Server

from webagent_trainer.board import State
from webagent_trainer.config import TrainerConfig
from webagent_trainer.crew import Crew, follow, join
from webagent_trainer.servicer import SERVICE, TrainerServicer
from webagent_trainer.supervisor import Supervisor

_GRACE_SECONDS = 1.0


async def serve_rank(config: TrainerConfig) -> None:
    """Serves on rank 0; on other ranks does as rank 0 says."""
    if join(config.rank_seconds) == 0:
        await _serve(config)
    else:
        follow()


async def _serve(config: TrainerConfig) -> None:
    crew = Crew()
    supervisor = Supervisor(config.queue, crew)
    server = Server(config.server, name="trainer", version=version("webagent-trainer"))
    register = trainer_pb2_grpc.add_TrainerServiceServicer_to_server
    server.add(register, TrainerServicer(supervisor), service=SERVICE, scope="trainer")
    try:
        await server.start()
        run = await supervisor.start(config.run.run_directory.name, config.run) if config.run is not None else None
        server.set_ready(True)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.run(supervisor.stop))
            if run is not None:
                await asyncio.wait({serving, run.task}, return_when=asyncio.FIRST_COMPLETED)
                serving.cancel()
        if run is not None and run.board.status.state is State.FAILED:
            sys.exit(1)
    finally:
        await supervisor.stop()
        await server.stop(_GRACE_SECONDS)
        crew.dismiss()
