"""`webagent train`: the whole loop, top to bottom.

    doctor ─ stack ─ zero_shot ─ demos ─ bc ─ bc evaluation ─ rl ─ rl evaluation ─ result.json, report.html

The policy's services evaluate between the trainer's phases; the trainer pauses itself after cloning. Everything that
was done is in the run's directory, so `--resume` goes on where a run was interrupted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webagent_runtime.config import ConfigError

from webagent_cli.clients import Clients
from webagent_cli.config import LoopConfig, load_loop, parse_settings
from webagent_cli.doctor import refuse_missing
from webagent_cli.dryrun import print_plan
from webagent_cli.evaluation import demonstrate, evaluate, refuse_other_settings, undemonstrated
from webagent_cli.memory import MemoryWatch
from webagent_cli.models import prepare_model
from webagent_cli.offers import check_experts, check_offers
from webagent_cli.progress import Display, duration
from webagent_cli.record import RunRecord
from webagent_cli.report import write_report
from webagent_cli.result import write_result
from webagent_cli.runs import LATEST, Run, find_run, new_run, shown
from webagent_cli.stack import Stack, free_ports
from webagent_cli.training import TrainerRun

BEFORE_TRAINING = ("nats", "env", "inference", "evaluator", "rollout")


def train(path: Path, *, runs: Path, name: str | None, resume: bool, dry_run: bool, settings: list[str]) -> None:
    """Runs the loop that a configuration describes, or goes on with an interrupted one."""
    display = Display()
    interrupted = find_run(runs, name or LATEST) if resume else None
    config = load_loop(interrupted.config if interrupted else path, parse_settings(settings))
    check_offers(config)
    if interrupted:
        refuse_other_settings(interrupted, config, RunRecord.read(interrupted.record))
    if dry_run:
        print_plan(config, display.console)
        return
    if config.deepspeed.nodes > 1:
        raise ConfigError("deepspeed.nodes is above 1: start the services by the commands that --dry-run prints")
    if config.variant != "r1-zero":
        check_experts(config.tasks.suite, undemonstrated(interrupted, config) if interrupted else config.tasks.ids)
    prepare_model(config.model, display.say)
    refuse_missing(config)
    run = interrupted or new_run(runs, name, label=path.stem)
    display.say(f"run {run.id}: {len(config.tasks.ids)} tasks, seed {config.seed}; logs in {shown(run.logs)}")
    with Stack(run, config, ports=free_ports()) as stack:
        run.config.write_text(config.to_yaml())
        run.mark_latest()
        training = Training(run, config, stack, display)
        try:
            training.start()
            asyncio.run(stack.watched(training.run_story(), training.memory.watch()))
        finally:
            training.save()


class Training:
    """One run of the loop."""

    def __init__(self, run: Run, config: LoopConfig, stack: Stack, display: Display) -> None:
        self.run = run
        self.config = config
        self.stack = stack
        self.display = display
        self.memory = MemoryWatch()
        self.record = RunRecord.read(run.record)
        self._earlier_restarts = Counter(self.record.restarts)

    def start(self) -> None:
        """Starts all but the trainer, which the untrained model's evaluation does not need."""
        with self._phase("start"):
            self.stack.start_all(self._say_ready, BEFORE_TRAINING)

    async def run_story(self) -> None:
        """The loop, phase by phase."""
        begun = time.monotonic()
        async with Clients(self.stack.addresses) as clients:
            trainer = TrainerRun(clients, self.run, self.config, self.stack, self.record, self.display)
            await self._evaluate(clients, "zero_shot")
            self.stack.start("trainer")
            if self.config.variant != "r1-zero":
                with self._phase("demos"):
                    await demonstrate(clients, self.run, self.config, self.display)
                if self.config.variant == "r1-cot":
                    await self._add_thoughts()
                with self._phase("bc"):
                    await trainer.run_until_paused()
                await self._evaluate(clients, "bc")
            with self._phase("rl"):
                await trainer.run_until_over()
            await self._evaluate(clients, "rl")
            if self.config.eval.greedy:
                await self._evaluate(clients, "rl_greedy")
            self.save()
            result = await write_result(clients, self.run, self.config, self.record)
        await asyncio.to_thread(write_report, self.run)
        self.display.say(result.headline())
        self.display.say(f"{duration(time.monotonic() - begun)}; report: {shown(self.run.report)}")

    async def _add_thoughts(self) -> None:
        from webagent_cli.thoughts import add_thoughts  # noqa: PLC0415  rollout need not be installed otherwise

        with self._phase("thoughts"):
            await add_thoughts(self.run, self.config, self.stack.addresses.of("inference"), self.display)

    def _say_ready(self, service: str, seconds: float) -> None:
        self.display.say(f"  {service:<10} ready after {seconds:.1f} s")

    async def _evaluate(self, clients: Clients, phase: str) -> None:
        with self._phase(f"eval_{phase}"):
            await evaluate(clients, self.run, self.config, self.record, phase, self.display)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Notes a phase's wall time, interrupted or not, and says when it is done."""
        entry, begun = self.record.phase(name), time.monotonic()
        try:
            yield
            entry.done = True
        finally:
            entry.seconds += time.monotonic() - begun
            self.save()
        self.display.say(f"{name:<16} {duration(entry.seconds)}")

    def save(self) -> None:
        """Writes the record."""
        self.record.peak_memory_bytes = max(self.record.peak_memory_bytes, self.memory.peak)
        self.record.restarts = dict(self._earlier_restarts + Counter(self.stack.restarts()))
        self.record.write(self.run.record)
