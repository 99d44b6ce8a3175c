"""Loops that are ended with the test that started them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.loop import Loop


@pytest.fixture
def start_loop(tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    """Starts `webagent train` on a small loop, with more arguments if given."""
    loops: list[Loop] = []

    def start(*arguments: str) -> Loop:
        loops.append(Loop(tmp_path, *arguments))
        return loops[-1]

    yield start
    for loop in loops:
        loop.end()
        # Gigabytes; the logs stay.
        for heavy in ("checkpoints", "policies"):
            shutil.rmtree(loop.run.path / heavy, ignore_errors=True)
