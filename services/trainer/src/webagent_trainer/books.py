"""Where a run's episodes are kept: entered in the ledger, archived, in play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited

from webagent_trainer.board import Board
from webagent_trainer.config import RunConfig
from webagent_trainer.groups import Assembly
from webagent_trainer.ledger import Ledger


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
    """The books of a run that plays episodes; None if it plays none."""
    config.run_directory.mkdir(parents=True, exist_ok=True)
    if config.rl is None or config.rl.stored is not None:
        return None
    return Books(
        ledger=Ledger(config.run_directory / "ledger.sqlite"),
        archive=Archive(config.run_directory / "archive.trajectories"),
        assembly=Assembly(board.bell, window=config.rl.invalid.window),
    )
