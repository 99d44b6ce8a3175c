"""Files of delimited trajectories, read back; a last message that a kill cut short is taken off."""

import os
from pathlib import Path

from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited


def read_episodes(path: Path) -> list[trajectory_pb2.Trajectory]:
    """All whole trajectories of a file; none if there is no file."""
    if not path.is_file():
        return []
    found: list[trajectory_pb2.Trajectory] = []
    try:
        for trajectory in delimited.read(path, trajectory_pb2.Trajectory):
            found.append(trajectory)
    except delimited.TruncatedError:
        return found
    return found


def mend(path: Path) -> None:
    """Cuts off what was being written when the writer was killed, so that the file can be appended to."""
    if not path.is_file():
        return
    try:
        for _ in delimited.read(path, trajectory_pb2.Trajectory):
            continue
    except delimited.TruncatedError as error:
        os.truncate(path, error.offset)
