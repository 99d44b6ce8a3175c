"""Puts the parts together: the process group, the supervisor and the server.

A process that has its run in its configuration ends with it: 0 if the run succeeded or StopRun stopped it, 3 if it
failed in a way that another try would repeat, 143 if a signal ended it before that, 1 otherwise.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from webagent.trainer.v1 import trainer_pb2_grpc
from webagent_runtime.server import Server

from webagent_trainer.board import State, Status
from webagent_trainer.config import TrainerConfig
from webagent_trainer.crew import Crew, follow, join
from webagent_trainer.servicer import SERVICE, TrainerServicer
from webagent_trainer.supervisor import Supervisor

_GRACE_SECONDS = 1.0
# What the world around a run caused, and may have mended by the next try.
_PASSING = {"CRASHED", "DISK_FULL", "INVALID_SHARE", "NOTHING_SCORED", "NOT_SERVED"}


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
    told_to_end = asyncio.Event()

    async def drain() -> None:
        told_to_end.set()
        await supervisor.stop()

    try:
        await server.start()
        run = await supervisor.start(config.run.run_directory.name, config.run) if config.run is not None else None
        server.set_ready(True)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.run(drain))
            if run is not None:
                await asyncio.wait({serving, run.task}, return_when=asyncio.FIRST_COMPLETED)
                serving.cancel()
        if run is not None:
            sys.exit(_exit_code(run.board.status, told_to_end=told_to_end.is_set()))
    finally:
        await supervisor.stop()
        await server.stop(_GRACE_SECONDS)
        crew.dismiss()


def _exit_code(status: Status, *, told_to_end: bool) -> int:
    if status.state is State.FAILED:
        return 1 if status.reason in _PASSING else 3
    return 143 if told_to_end and status.state is not State.SUCCEEDED else 0
