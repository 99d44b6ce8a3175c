"""The frame of the commands that read one file and write another of trajectories, whose prompts inference renders."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterable, Mapping
from pathlib import Path

from webagent.trajectory.v1.trajectory_pb2 import Trajectory
from webagent_runtime import delimited


def add_files(parser: argparse.ArgumentParser, *, inference: str) -> None:
    """Adds both files and the inference service; `inference` says what it is needed for."""
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--inference", default="127.0.0.1:50052", help=inference)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; a target that exists is refused."""
    options = parser.parse_args()
    if options.target.exists():
        parser.error(f"{options.target} exists already")
    return options


async def write_all(made: AsyncIterable[Trajectory], target: Path) -> int:
    """Appends each as it is made; returns how many."""
    written = 0
    async for trajectory in made:
        delimited.append(target, trajectory)
        written += 1
    return written


def causes_of(left_out: Mapping[str, int]) -> str:
    """What was left out and why, to follow a count."""
    return "".join(f", {count} left out: {cause}" for cause, count in left_out.items())
