"""Runs on rank 0: at most one active at a time, each with a thread that computes and a task that takes outcomes.

A run is over when its thread ends; the board then says how. Everything of the run is closed before its task ends.
What a run left on the queue is dropped once it succeeded: any other run may be resumed and finds it there.
The queue is connected to when the first run starts, and closed by `stop`.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.config import PayloadConfig, QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Queue

from webagent_trainer.board import Board, State
from webagent_trainer.books import Books, open_books
from webagent_trainer.config import RunConfig, check_run
from webagent_trainer.crew import Crew
from webagent_trainer.errors import RunFailedError, RunStoppedError
from webagent_trainer.exchange import Exchange
from webagent_trainer.intake import Intake
from webagent_trainer.phases import train

log = structlog.get_logger()

_FULL_BYTES = 64 << 20


@dataclass(frozen=True)
class StartedRun:
    """A run of this process, active or over."""

    run_id: str
    config: RunConfig
    board: Board
    books: Books | None
    task: asyncio.Task[None]


class Supervisor:
    """Starts runs and looks after them."""

    def __init__(self, queue: QueueConfig, crew: Crew) -> None:
        self._queue_config = queue
        self._queue: Queue | None = None
        self._crew = crew
        self._runs: dict[str, StartedRun] = {}
        self._starting = asyncio.Lock()

    def get(self, run_id: str) -> StartedRun:
        """A run by its id, or RUN_NOT_FOUND."""
        run = self._runs.get(run_id)
        if run is None:
            message = f"this trainer has no run {run_id!r}"
            raise ServiceError(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", message)
        return run

    async def start(self, run_id: str, config: RunConfig) -> StartedRun:
        """Starts a run, or resumes one that stopped or failed. One that goes on or succeeded is returned as it is."""
        check_run(run_id, config)
        async with self._starting:
            return await self._start(run_id, config)

    async def versions(self, run_id: str) -> list[policy_pb2.PolicyVersion]:
        """The versions that a run published, oldest first."""
        self.get(run_id)
        queue = await self._connected()
        return [version for version in await queue.versions() if version.run_id == run_id]

    async def stop(self) -> None:
        """Ends what is active, in order. Cancelled, it leaves runs to themselves; called again, it goes on."""
        for run in self._runs.values():
            run.board.ask_stop()
        if self._runs:
            await asyncio.wait({run.task for run in self._runs.values()})
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()

    async def _connected(self) -> Queue:
        if self._queue is None:
            self._queue = await Queue.connect(self._queue_config, name="trainer")
        return self._queue

    async def _start(self, run_id: str, config: RunConfig) -> StartedRun:
        known = self._runs.get(run_id)
        if known is not None and known.board.status.state not in {State.STOPPED, State.FAILED}:
            if known.config != config:
                message = f"run {run_id!r} was started with another configuration"
                raise ServiceError(grpc.StatusCode.ALREADY_EXISTS, "RUN_CONFLICT", message)
            return known
        active = [run for run in self._runs.values() if not run.task.done()]
        if active:
            message = f"run {active[0].run_id!r} is active; one process group holds one run"
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "BUSY", message)
        queue = await self._connected()
        board = Board(run_id, hold=config.pause_between_phases)
        books = await asyncio.to_thread(open_books, config, board)
        payloads = PayloadStore(config.payloads or PayloadConfig(uri=_uri(config.run_directory / "payloads")))
        await queue.ensure()
        await queue.ensure_run(run_id)
        task = asyncio.create_task(self._run(run_id, config, board, books, payloads, queue))
        self._runs[run_id] = StartedRun(run_id, config, board, books, task)
        return self._runs[run_id]

    async def _run(
        self, run_id: str, config: RunConfig, board: Board, books: Books | None, payloads: PayloadStore, queue: Queue
    ) -> None:
        # Not the call that happened to start the run.
        structlog.contextvars.clear_contextvars()
        stop = asyncio.Event()
        exchange = Exchange(asyncio.get_running_loop(), queue)
        tasks: list[asyncio.Task[None]] = []
        if books is not None:
            intake = Intake(queue, payloads, run_id, books=books)
            tasks.append(asyncio.create_task(intake.run(stop)))
        training = asyncio.create_task(
            asyncio.to_thread(train, config, crew=self._crew, exchange=exchange, board=board, books=books)
        )
        try:
            await asyncio.wait({training, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if not training.done():
                # The intake ended first, which it does only by failing.
                board.ask_stop()
            await asyncio.wait({training})
            stop.set()
            await asyncio.gather(*tasks)
            training.result()
            board.update(state=State.SUCCEEDED)
        except RunStoppedError:
            board.update(state=State.STOPPED)
        except RunFailedError as error:
            log.warning("run_failed", reason=error.reason, detail=error.detail)
            board.update(state=State.FAILED, reason=error.reason, detail=error.detail)
        except Exception as error:
            # The top of a run: whatever it was, the run ends and says so.
            log.exception("run_crashed")
            free = shutil.disk_usage(config.run_directory).free
            reason, detail = crash_of(error, config.run_directory, free_bytes=free)
            board.update(state=State.FAILED, reason=reason, detail=detail)
        finally:
            stop.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            if board.status.state is State.SUCCEEDED:
                await _drop(queue, run_id)
            log.info("run_over", run_id=run_id, state=board.status.state.value)


async def _drop(queue: Queue, run_id: str) -> None:
    try:
        await queue.drop_run(run_id)
    except Exception:
        # The run has succeeded, whatever stays on the queue.
        log.exception("run_not_dropped", run_id=run_id)


def crash_of(error: Exception, directory: Path, *, free_bytes: int) -> tuple[str, str]:
    """Reason and detail of an error that nobody foresaw. A full disk has many, and torch's name something else."""
    detail = f"{type(error).__name__}: {error}"
    if free_bytes < _FULL_BYTES:
        return "DISK_FULL", f"{directory} has {free_bytes >> 20} MiB left: make room there and resume. {detail}"
    return "CRASHED", detail


def _uri(directory: Path) -> str:
    return directory.resolve().as_uri()
