"""A run directory belongs to one trainer at a time."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from webagent_runtime.errors import ServiceError
from webagent_trainer import books
from webagent_trainer.board import Board
from webagent_trainer.books import open_books
from webagent_trainer.config import parse_run

RUN = "run_directory: {}\nmodel: m\nrl: {{suite: s, tasks: [a], seeds: {{first: 0, count: 99}}}}"
OTHER = """
import sys
from webagent_trainer.board import Board
from webagent_trainer.books import open_books
from webagent_trainer.config import parse_run
books = open_books(parse_run(sys.argv[1]), Board("other"))
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_trainer(run: str) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps the run's books open."""
    command = [sys.executable, "-c", OTHER, run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        try:
            yield other
        finally:
            other.kill()


@pytest.fixture
def run(tmp_path: Path) -> str:
    return RUN.format(tmp_path / "run")


def test_a_run_that_another_trainer_keeps_is_refused_and_left_as_it_is(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "TAKEOVER_SECONDS", 0.3)
    config = parse_run(run)
    with another_trainer(run):
        # Half a message, as the other one may be writing it.
        archive = config.run_directory / "archive.trajectories"
        archive.write_bytes(b"\x09half")
        with pytest.raises(ServiceError, match="another trainer keeps the run") as refused:
            open_books(config, Board("run"))
        assert refused.value.reason == "BUSY"
        assert archive.read_bytes() == b"\x09half"


def test_a_trainer_that_is_ending_is_waited_for(run: str) -> None:
    with another_trainer(run) as other:
        ending = threading.Timer(0.5, other.kill)
        ending.start()
        assert open_books(parse_run(run), Board("run")) is not None
        assert other.wait(10) != 0
        ending.join()


def test_a_trainer_may_open_its_run_again(run: str) -> None:
    for _ in range(2):
        assert open_books(parse_run(run), Board("run")) is not None
