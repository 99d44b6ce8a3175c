"""Saved states of a run, from which it resumes exactly.

    checkpoints/<number>/state.json      phase, counters, sampler, lineage, ledger position
                         engine/         DeepSpeed's own files: parameters, optimizer
                         complete.json   every file with its size

A checkpoint appears under its number in one step, when all of it is there. One whose pieces are missing or damaged is
an error: resuming from an older one would repeat work without anybody knowing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_trainer.errors import RunFailedError

_STATE = "state.json"
_ENGINE = "engine"
_COMPLETE = "complete.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    state: Mapping[str, Any]
    engine: Path | None  # None: a fresh engine


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, root: Path, *, keep: int) -> None:
        self._root = root
        self._keep = keep

    def save(self, state: Mapping[str, Any], save_engine: Callable[[Path], None] | None) -> None:
        """Writes the next checkpoint; it counts once all of it is there."""
        number = max(self._numbers(), default=0) + 1
        directory = self._root / str(number)
        partial = self._root / f".{number}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        text = json.dumps(state).encode()
        (partial / _STATE).write_bytes(text)
        if save_engine is not None:
            save_engine(partial / _ENGINE)
        sizes = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
        summary = {"state_sha256": hashlib.sha256(text).hexdigest(), "engine": save_engine is not None, "sizes": sizes}
        (partial / _COMPLETE).write_text(json.dumps(summary))
        os.replace(partial, directory)
        for old in sorted(self._numbers())[: -self._keep]:
            shutil.rmtree(self._root / str(old))

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint, whole; None if there is none."""
        numbers = self._numbers()
        if not numbers:
            return None
        return read_checkpoint(self._root / str(max(numbers)))

    def _numbers(self) -> list[int]:
        if not self._root.is_dir():
            return []
        return [int(entry.name) for entry in self._root.iterdir() if entry.name.isdigit()]


def read_checkpoint(directory: Path) -> Checkpoint:
    """The checkpoint in a directory, whole; RunFailedError if a piece is missing or damaged."""
    try:
        summary = json.loads((directory / _COMPLETE).read_bytes())
        text = (directory / _STATE).read_bytes()
    except (OSError, ValueError) as error:
        raise _damaged(directory, str(error)) from error
    if hashlib.sha256(text).hexdigest() != summary["state_sha256"]:
        raise _damaged(directory, f"{_STATE} has changed")
    for name, size in summary["sizes"].items():
        path = directory / name
        if not path.is_file():
            raise _damaged(directory, f"{name} is missing")
        if path.stat().st_size != size:
            raise _damaged(directory, f"{name} has {path.stat().st_size} bytes, not {size}")
    return Checkpoint(json.loads(text), directory / _ENGINE if summary["engine"] else None)


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _damaged(directory: Path, cause: str) -> RunFailedError:
    detail = f"checkpoint {directory}: {cause}; remove the directory to resume from the one before"
    return RunFailedError("CHECKPOINT_DAMAGED", detail)
