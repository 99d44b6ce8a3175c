"""One run from its configuration to its end, in the thread that trains: the phases and what both of them use.

    base model ─► behaviour cloning ─► version ─► (pause) ─► reinforcement ─► versions

A phase opens a fresh optimizer on the weights that the one before it published; those are also the KL term's reference.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import structlog

from webagent_trainer.beginnings import weights_of
from webagent_trainer.board import Board, State
from webagent_trainer.checkpoint import Checkpoint, Checkpoints
from webagent_trainer.config import OptimizerConfig, RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.errors import RunFailedError, RunStoppedError
from webagent_trainer.exchange import Exchange
from webagent_trainer.journal import Journal
from webagent_trainer.learner import compute_dtype
from webagent_trainer.lineage import Lineage
from webagent_trainer.publish import PolicyDirectory, write_model

log = structlog.get_logger()

_WELL_AHEAD = 3.0
_SMALL_MODEL_BYTES = 2**30
_CANDIDATES = 4


class Attached(Protocol):
    """What a phase keeps beside the engine's own files."""

    def save(self, directory: Path) -> None:
        """Writes it."""

    def restore(self, directory: Path) -> None:
        """Reads what `save` wrote."""


class Run:
    """What the phases of a run share."""

    def __init__(self, config: RunConfig, *, crew: Crew, exchange: Exchange, board: Board) -> None:
        self.config = config
        self.run_id = config.run_directory.name
        self.crew = crew
        self.exchange = exchange
        self.vocabulary = read_vocabulary(config.model)
        self.checkpoint_every = config.checkpoints.every or (1 if _is_small(config.model) else 5)
        self.lineage = Lineage()
        self._board = board
        self._directory = config.run_directory
        self._checkpoints = Checkpoints(self._directory / "checkpoints", keep=config.checkpoints.keep)
        self._policies = PolicyDirectory(
            self._directory / "policies",
            base_model=config.model,
            run_id=self.run_id,
            tolerance=config.publish.canary_tolerance,
            uri=config.publish.uri,
        )
        self._journal = Journal(self._directory)
        self._best = self._directory / "best"
        self._ends: dict[str, int] = {}
        self._steps = 0
        # Of the newest canaries; before there are any, some tokens do as well.
        self._prompts: list[list[int]] = [list(range(1, min(17, self.vocabulary)))]
        self.newest_version = 0
        self._attached: Attached | None = None

    def attach(self, what: Attached) -> None:
        """Has checkpoints carry it from now on; `open` restores it."""
        self._attached = what

    def resume(self) -> Checkpoint | None:
        """The newest checkpoint, its shared part taken over."""
        checkpoint = self._checkpoints.newest()
        self.newest_version = self.exchange.highest_version()
        if checkpoint is not None:
            shared = checkpoint.state["shared"]
            self.lineage = Lineage(shared["lineage"])
            self._ends = dict(shared["ends"])
            self._steps = shared["steps"]
            self._prompts = shared["prompts"]
            log.info("resumed", phase=checkpoint.state["phase"], version=self.lineage.version)
        return checkpoint

    def open(
        self,
        checkpoint: Checkpoint | None,
        optimizer: OptimizerConfig,
        *,
        after: str | None,
        reference: bool,
        temperature: float,
    ) -> None:
        """Loads the weights that phase `after` ended with, or the base model, and what a checkpoint adds to them."""
        start = self._policies.path(self._ends[after]) if after in self._ends else self._beginning()
        self.crew.open(str(start), str(start) if reference else None, optimizer, temperature)
        if checkpoint is not None and checkpoint.engine is not None:
            self.crew.restore(str(checkpoint.engine))
            if self._attached is not None:
                self._attached.restore(checkpoint.engine)

    def _beginning(self) -> Path:
        source = self.config.start_from
        if source is None:
            return self.config.model
        dtype = compute_dtype(self.config.deepspeed)
        return weights_of(source, base_model=self.config.model, into=self._directory / "start", dtype=dtype)

    def begin(self, phase: str, *, iterations: int, done: int) -> None:
        """A phase begins or goes on."""
        self._board.update(
            state=State.RUNNING, phase=phase, iteration=done, iterations=iterations, version=self.lineage.version
        )

    def note(self, metrics: Mapping[str, float], *, iteration: int) -> None:
        """Reports an iteration's numbers and writes them down."""
        self._board.update(iteration=iteration, metrics=dict(metrics), version=self.lineage.version)
        phase = self._board.status.phase
        self._journal.write(metrics, phase=phase, iteration=iteration, version=self.lineage.version)
        log.info("iteration", phase=phase, iteration=iteration, **{k: round(v, 4) for k, v in metrics.items()})

    def stop_point(self, phase: str, state: Callable[[], Mapping[str, Any]]) -> None:
        """Where a run may pause or end; it checkpoints first. RunStoppedError: it ends."""
        if not (self._board.stop_asked or self._board.pause_asked):
            return
        self.checkpoint(phase, state())
        self._board.wait_while_paused()
        if self._board.stop_asked:
            raise RunStoppedError

    def hold_point(self) -> None:
        """Between phases; as `stop_point`, and pauses if the configuration asks for it."""
        self._board.wait_while_held()
        if self._board.stop_asked:
            raise RunStoppedError

    def checkpoint(self, phase: str, progress: Mapping[str, Any], *, engine: bool = True) -> None:
        """Saves everything that a resumed run needs; without `engine` it begins the phase with a fresh one."""
        began = time.monotonic()
        shared = {
            "lineage": self.lineage.state(),
            "ends": self._ends,
            "steps": self._steps,
            "prompts": self._prompts,
        }
        state = {"phase": phase, "progress": progress, "shared": shared}
        self._checkpoints.save(state, self._save_engine if engine else None)
        log.info("checkpoint_saved", phase=phase, seconds=round(time.monotonic() - began, 2))

    def publish(self, phase: str, prompts: Sequence[Sequence[int]], *, last: bool) -> None:
        """Makes the weights in training the next policy version."""
        self._steps += 1
        self._prompts = [list(prompt) for prompt in prompts[: _CANDIDATES * self.config.publish.canaries]]
        version = self._write(phase, self._prompts, parent=self.lineage.version)
        self.lineage.advance(version)
        if last:
            self._ends[phase] = version
        self._policies.keep(self.config.publish.keep, also={self.lineage.version, *self._ends.values()})
        self._board.update(version=version)

    def align(self, phase: str) -> None:
        """Has replicas serve the weights in training: they begin with the base model and follow the highest number,
        which may be another's.
        """
        if self.lineage.version == 0 and self.config.start_from is not None:
            self.lineage.advance(self._write(phase, self._prompts, parent=0))
        elif self.newest_version != self.lineage.version:
            self.lineage.rename(self._write(phase, self._prompts, parent=self.lineage.parent))
        self._board.update(version=self.lineage.version)

    def wait_served(self, seconds: float, *, required: bool) -> None:
        """Returns once replicas serve the newest version."""
        if self.lineage.version:
            self.exchange.wait_served(
                self.lineage.version, seconds=seconds, required=required, stop=lambda: self._board.stop_asked
            )

    def check_served(self) -> None:
        """Fails the run if all replicas have refused the newest version; waits for none."""
        if self.lineage.version:
            self.exchange.check_served(self.lineage.version)

    def keep_as_best(self) -> None:
        """Remembers the weights in training as the best so far."""
        shutil.rmtree(self._best, ignore_errors=True)
        write_model(self.crew.weights(), base_model=self.config.model, directory=self._best)

    def return_to_best(self, optimizer: OptimizerConfig) -> None:
        """Goes back to the weights that were kept."""
        self.crew.open(str(self._best), None, optimizer, 1.0)

    def _save_engine(self, path: Path) -> None:
        self.crew.save(str(path))
        if self._attached is not None:
            self._attached.save(path)

    def _write(self, phase: str, prompts: Sequence[Sequence[int]], *, parent: int) -> int:
        settings = self.config.publish
        margin = _WELL_AHEAD * settings.canary_tolerance
        proofs = self.crew.continuations(prompts, settings.canaries, settings.canary_tokens, margin)
        version = max(self.newest_version, self.exchange.highest_version(), self.lineage.version) + 1
        entry = self._policies.write(
            self.crew.weights(), proofs, version=version, parent=parent, step=self._steps, phase=phase
        )
        self.exchange.announce(entry)
        self.newest_version = version
        return version


def read_vocabulary(model: Path) -> int:
    """The vocabulary's size of a model directory."""
    try:
        return int(json.loads((model / "config.json").read_bytes())["vocab_size"])
    except (OSError, ValueError, KeyError) as error:
        raise RunFailedError("MODEL_UNREADABLE", f"{model} is no model directory: {error}") from error


def _is_small(model: Path) -> bool:
    """Whether a checkpoint takes little of the time of an iteration."""
    return sum(file.stat().st_size for file in model.glob("*.safetensors")) < _SMALL_MODEL_BYTES
