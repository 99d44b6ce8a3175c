"""After a run's last iteration nothing is in play any more."""

import asyncio
from pathlib import Path

from webagent_runtime.config import validate
from webagent_runtime.queue import Queue
from webagent_trainer.board import Board
from webagent_trainer.books import open_books
from webagent_trainer.config import RunConfig
from webagent_trainer.crew import Crew
from webagent_trainer.exchange import Exchange
from webagent_trainer.ledger import Entry
from webagent_trainer.methods import method_of
from webagent_trainer.rl import Reinforcement
from webagent_trainer.run import Run
from webagent_trainer.sampler import TaskSampler


async def test_a_run_resumed_with_fewer_iterations_leaves_nothing_open(
    queue: Queue, crew: Crew, tiny_model: Path, tmp_path: Path
) -> None:
    rl = {"suite": "toy", "tasks": ["a"], "seeds": {"first": 0, "count": 100}, "iterations": 2}
    config = validate(RunConfig, {"run_directory": tmp_path / "ends", "model": tiny_model, "rl": rl}, source="test")
    assert config.rl is not None
    board = Board("ends")
    books = open_books(config, board)
    assert books is not None
    books.ledger.enter(Entry(name, "g", 3, "toy", "a", 1, 0, 1e12) for name in ("open", "scored", "trained"))
    for name in ("scored", "trained"):
        books.ledger.settle(name, "SCORED", reward=1.0)
    books.ledger.use(["trained"], "TRAINED")
    crew.begin(config.deepspeed)
    run = Run(config, crew=crew, exchange=Exchange(asyncio.get_running_loop(), queue), board=board)
    phase = Reinforcement(run, config.rl, books, method_of(run.crew, config.rl, seed=0))
    sampler = TaskSampler(config.rl.tasks, config.rl.seeds, config.rl.task_sampler, seed=0).state()
    phase.restore({"iteration": 4, "sampler": sampler, "identity": None, "ledger_position": 1})
    await asyncio.to_thread(phase.run)
    counts = books.ledger.counts()
    wanted = {"open": 0, "unused": 0, "expired": 1, "surplus": 1, "trained": 1, "late": 0}
    assert {name: counts[name] for name in wanted} == wanted
    # Whatever still comes of it is late.
    assert not books.ledger.settle("open", "SCORED", reward=1.0)
    assert books.ledger.counts()["late"] == 1
    books.ledger.close()
