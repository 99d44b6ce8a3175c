"""Files of delimited trajectories, read back; a last message cut short by a kill is taken off first."""

from pathlib import Path

from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited


def read_episodes(path: Path) -> list[trajectory_pb2.Trajectory]:
    """All whole trajectories of a file; none if there is no file."""
    if not path.is_file():
        return []
    return list(delimited.read(path, trajectory_pb2.Trajectory))
