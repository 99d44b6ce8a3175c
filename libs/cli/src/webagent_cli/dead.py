"""`webagent ledger RUN --dead`: the run's dead letters, and putting them back on their streams with `--replay`.

A request dies when it was delivered as often as the queue allows without an outcome, a trajectory when nobody could
decode it. The ledger's first outcome is final: what a replayed request brings is counted as late and trains nothing,
so a replay shows why it died, or brings a trajectory back that a newer trainer can read.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import yaml
from google.protobuf.message import DecodeError
from rich.console import Console
from rich.table import Table
from webagent.trajectory.v1.trajectory_pb2 import DeadLetter, RolloutRequest, Trajectory
from webagent_runtime.config import ConfigError, QueueConfig
from webagent_runtime.queue import Queue

from webagent_cli.runs import Run, find_run


def dead_letters(name: str, *, runs: Path, url: str | None, replay: bool) -> None:
    """Prints the run's dead letters; with `replay`, puts them back."""
    run = find_run(runs, name)
    letters = asyncio.run(_handle(run.id, QueueConfig(url=url or queue_of(run)), replay=replay))
    if not letters:
        Console().print(f"run {run.id} has no dead letters", highlight=False)
        return
    Console().print(_table(run.id, letters))
    if replay:
        Console().print(f"{len(letters)} put back on their streams", highlight=False)


def queue_of(run: Run) -> str:
    """The queue that the run's trainer was configured with."""
    path = run.service_config("trainer")
    try:
        url = yaml.safe_load(path.read_text())["queue"]["url"]
    except (OSError, KeyError, TypeError):
        raise ConfigError(f"{path} names no queue: say which with --queue nats://host:port") from None
    return str(url)


def said_by(letter: DeadLetter) -> tuple[str, str]:
    """Episode and task of the message that died, as far as it can be read."""
    kind = RolloutRequest if letter.stream == "REQUESTS" else Trajectory
    try:
        episode = kind.FromString(letter.payload).episode
    except DecodeError:
        return "(unreadable)", ""
    return episode.episode_id, f"{episode.task.task_id}/{episode.seed}"


async def _handle(run_id: str, config: QueueConfig, *, replay: bool) -> list[DeadLetter]:
    queue = await Queue.connect(config, name="ledger")
    try:
        letters = [letter for letter in await queue.dead_letters() if letter.subject.endswith(f".{run_id}")]
        if replay:
            for letter in letters:
                await queue.replay(letter)
    finally:
        await queue.close()
    return letters


def _table(run_id: str, letters: Sequence[DeadLetter]) -> Table:
    table = Table("died", "stream", "episode", "task/seed", "reason", "deliveries", box=None)
    table.title, table.title_justify = f"dead letters of {run_id}", "left"
    for letter in letters:
        died = letter.died_at.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")
        episode, task = said_by(letter)
        table.add_row(died, letter.stream.lower(), episode, task, letter.reason, str(letter.deliveries))
    return table
