"""Where a run's episodes are kept: entered in the ledger, archived, in play.

A run directory belongs to one process at a time: the first to open its books keeps it until it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from grpc import StatusCode
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.errors import ServiceError

from webagent_trainer.board import Board
from webagent_trainer.config import RunConfig
from webagent_trainer.groups import Assembly
from webagent_trainer.ledger import Ledger

# Of the wait for a trainer that is ending. Shorter than the deadlines of who calls StartRun.
TAKEOVER_SECONDS = 20.0
_POLL_SECONDS = 0.1
# The run directories of this process, each with its locked descriptor.
_held: dict[Path, int] = {}


class Archive:
    """Every trajectory that the run took, as delimited protobuf."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cut_broken_end()

    def append(self, trajectory: trajectory_pb2.Trajectory) -> int:
        """Writes a trajectory durably and returns where it begins."""
        start = self._path.stat().st_size if self._path.exists() else 0
        delimited.append(self._path, trajectory)
        return start

    def read(self, offset: int) -> trajectory_pb2.Trajectory:
        """The trajectory that begins at `offset`."""
        return next(delimited.read(self._path, trajectory_pb2.Trajectory, start=offset))

    def _cut_broken_end(self) -> None:
        """A trainer that died while writing left half a message; it was not acknowledged and comes again."""
        if not self._path.exists():
            return
        try:
            for _ in delimited.read(self._path, trajectory_pb2.Trajectory):
                pass
        except delimited.TruncatedError as error:
            with self._path.open("r+b") as file:
                file.truncate(error.offset)


@dataclass(frozen=True)
class Books:
    """All three of one run."""

    ledger: Ledger
    archive: Archive
    assembly: Assembly


def open_books(config: RunConfig, board: Board) -> Books | None:
    """The books of a run that plays episodes; None if it plays none. BUSY: another trainer keeps the run."""
    config.run_directory.mkdir(parents=True, exist_ok=True)
    _keep(config.run_directory.resolve())
    if config.rl is None or config.rl.stored is not None:
        return None
    return Books(
        ledger=Ledger(config.run_directory / "ledger.sqlite"),
        archive=Archive(config.run_directory / "archive.trajectories"),
        assembly=Assembly(board.bell, window=config.rl.invalid.window),
    )


def _keep(directory: Path) -> None:
    """Makes a run this process's own; one that is ending is waited for. The kernel gives up what a process held."""
    if directory in _held:
        return
    deadline = time.monotonic() + TAKEOVER_SECONDS
    descriptor = os.open(directory / "trainer.lock", os.O_RDWR | os.O_CREAT, 0o644)
    while not _locked(descriptor):
        if time.monotonic() > deadline:
            os.close(descriptor)
            message = f"another trainer keeps the run in {directory}: end that one first"
            raise ServiceError(StatusCode.FAILED_PRECONDITION, "BUSY", message)
        time.sleep(_POLL_SECONDS)
    _held[directory] = descriptor


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
