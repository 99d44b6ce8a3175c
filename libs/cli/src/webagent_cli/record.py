"""What a run has done so far, kept in phases.json and written after each step, so that it can be continued."""

import time
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field


class PhaseRecord(BaseModel):
    """One phase. Seconds add up over the sessions in which it ran."""

    seconds: float = 0.0
    done: bool = False


class IterationRecord(BaseModel):
    """The trainer's numbers after one iteration."""

    phase: str
    iteration: int
    at: float
    metrics: dict[str, float] = {}


class RunRecord(BaseModel):
    """Phases and iterations of a run, and the largest memory seen."""

    phases: dict[str, PhaseRecord] = {}
    iterations: list[IterationRecord] = []
    versions: dict[str, int] = Field(default={}, description="Policy version that each phase evaluated.")
    peak_memory_bytes: int = 0
    restarts: dict[str, int] = {}
    ledger: dict[str, int] = {}
    components: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record of a run; a new one if there is none."""
        return cls.model_validate_json(path.read_text()) if path.is_file() else cls()

    def write(self, path: Path) -> None:
        """Replaces the file, whole or not at all."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(self.model_dump_json(indent=2))
        temporary.replace(path)

    def phase(self, name: str) -> PhaseRecord:
        """The phase's entry, made if it is new."""
        return self.phases.setdefault(name, PhaseRecord())

    def add_iteration(self, phase: str, iteration: int, metrics: dict[str, float]) -> None:
        """Notes an iteration; a repeated one (after a resume) replaces what was noted from it on."""
        kept = [old for old in self.iterations if old.phase != phase or old.iteration < iteration]
        self.iterations = [*kept, IterationRecord(phase=phase, iteration=iteration, at=time.time(), metrics=metrics)]
