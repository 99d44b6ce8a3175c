"""The phases of a run, one after the other, in the thread that trains.

A phase that ended leaves a checkpoint of the next one's beginning, so a resumed run never repeats it.
"""

from __future__ import annotations

import logging

from webagent_trainer import bc, rl
from webagent_trainer.board import Board
from webagent_trainer.books import Books
from webagent_trainer.checkpoint import Checkpoint
from webagent_trainer.config import BcConfig, RlConfig, RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.exchange import Exchange
from webagent_trainer.methods import method_of
from webagent_trainer.offline import Offline
from webagent_trainer.run import Run

_DONE = "done"


def train(config: RunConfig, *, crew: Crew, exchange: Exchange, board: Board, books: Books | None) -> None:
    """Runs what is left of a run; how it ends otherwise is a RunFailedError or a RunStoppedError."""
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    crew.begin(config.deepspeed)
    try:
        run = Run(config, crew=crew, exchange=exchange, board=board)
        checkpoint = run.resume()
        phase = checkpoint.state["phase"] if checkpoint is not None else _first(config)
        if phase == bc.PHASE and config.bc is not None:
            _clone(run, config.bc, checkpoint, _DONE if config.rl is None else rl.PHASE)
            checkpoint, phase = None, _DONE if config.rl is None else rl.PHASE
        if phase == rl.PHASE and config.rl is not None:
            _reinforce(run, config.rl, checkpoint, books)
            run.checkpoint(_DONE, {}, engine=False)
    finally:
        crew.close()


def _first(config: RunConfig) -> str:
    return rl.PHASE if config.bc is None else bc.PHASE


def _clone(run: Run, config: BcConfig, checkpoint: Checkpoint | None, following: str) -> None:
    run.open(checkpoint, config.optimizer, after=None, reference=False, temperature=1.0)
    progress = checkpoint.state["progress"] if checkpoint is not None else {}
    bc.clone(run, config, bc.CloningState(**progress))
    run.checkpoint(following, {}, engine=False)
    run.wait_served(config.serve_seconds, required=False)


def _reinforce(run: Run, config: RlConfig, checkpoint: Checkpoint | None, books: Books | None) -> None:
    progress = checkpoint.state["progress"] if checkpoint is not None else {}
    if not progress:
        run.hold_point()
    method = method_of(run.crew, config, seed=run.config.seed)
    run.attach(method)
    phase: rl.Reinforcement | Offline
    if config.stored is not None:
        phase = Offline(run, config, method, config.stored)
    else:
        assert books is not None
        phase = rl.Reinforcement(run, config, books, method)
    phase.restore(progress)
    run.open(
        checkpoint,
        config.optimizer,
        after=bc.PHASE,
        reference=config.kl_coefficient > 0 and config.method.name == "m-grpo",
        temperature=config.sampling.temperature,
    )
    run.align(rl.PHASE)
    run.wait_served(config.serve_seconds, required=books is not None)
    phase.run()
