"""What a run has done so far, kept in phases.json and written after each step, so that it can be continued."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field


class PhaseRecord(BaseModel):
    """One phase. Seconds add up over the sessions in which it ran."""

    seconds: float = 0.0
    done: bool = False


class RunRecord(BaseModel):
    """Phases of a run, and the largest memory seen."""

    phases: dict[str, PhaseRecord] = {}
    versions: dict[str, int] = Field(default={}, description="Policy version that each phase evaluated.")
    peak_memory_bytes: int = 0
    restarts: dict[str, int] = {}

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
