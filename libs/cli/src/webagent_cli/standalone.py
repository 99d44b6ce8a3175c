"""`webagent eval` and `webagent demos`: one phase of the loop by itself, on a stack without a trainer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.table import Table
from webagent.evaluator.v1 import evaluator_pb2

from webagent_cli.clients import Clients
from webagent_cli.config import LoopConfig, load_loop, parse_settings
from webagent_cli.doctor import refuse_missing
from webagent_cli.evaluation import demonstrate, evaluate, summarize
from webagent_cli.models import prepare_model
from webagent_cli.offers import check_offers
from webagent_cli.progress import Display
from webagent_cli.result import rate_of
from webagent_cli.runs import Run, find_run, new_run
from webagent_cli.stack import Stack, free_ports
from webagent_cli.versions import newest_version

SERVICES = ("nats", "env", "inference", "evaluator", "rollout")


def evaluation(path: Path, *, runs: Path, run: str | None, greedy: bool, settings: list[str]) -> None:
    """Plays the held-out seeds with the base model, or with the newest policy of a run, and prints the rates."""
    display = Display()
    trained = find_run(runs, run) if run else None
    config = _prepared(trained.config if trained else path, settings, display)
    here = trained or new_run(runs, None, label="eval")
    if trained is None:
        here.config.write_text(config.to_yaml())
    version = newest_version(here) if trained else 0
    temperature = 0.0 if greedy else config.eval.temperature
    phase = f"v{version}_t{temperature:g}"

    async def work(clients: Clients) -> None:
        outcomes = await evaluate(clients, here, config, phase, display, temperature=temperature, version=version)
        _print_rates(
            await summarize(clients, outcomes), display, f"policy version {version}, temperature {temperature:g}"
        )
        display.say(f"episodes: {here.episodes(phase)}")

    _with_stack(here, config, display, work)


def demonstrations(path: Path, *, runs: Path, run: str | None, settings: list[str]) -> None:
    """Has the scripted experts play; the successes are written as trajectories."""
    display = Display()
    config = _prepared(path, settings, display)
    here = new_run(runs, run, label="demos")
    here.config.write_text(config.to_yaml())

    async def work(clients: Clients) -> None:
        kept = await demonstrate(clients, here, config, display)
        turns = sum(len(one.turns) for one in kept)
        display.say(f"{len(kept)} demonstrations, {turns} turns: {here.demos}")

    _with_stack(here, config, display, work)


def _prepared(path: Path, settings: list[str], display: Display) -> LoopConfig:
    config = load_loop(path, parse_settings(settings))
    check_offers(config)
    prepare_model(config.model, display.say)
    refuse_missing(config)
    return config


def _with_stack(run: Run, config: LoopConfig, display: Display, work: Callable[[Clients], Awaitable[None]]) -> None:
    async def session(stack: Stack) -> None:
        async with Clients(stack.addresses) as clients:
            await work(clients)

    with Stack(run, config, ports=free_ports(), services=SERVICES) as stack:
        stack.start_all(lambda service, seconds: display.say(f"  {service:<10} ready after {seconds:.1f} s"))
        asyncio.run(stack.watched(session(stack)))


def _print_rates(summary: evaluator_pb2.SummarizeResponse, display: Display, title: str) -> None:
    table = Table("task", "success [95 %]", "n", "invalid", title=title, title_justify="left")
    for site in summary.sites:
        rate = rate_of(site.rate)
        table.add_row(site.site, rate.text(), str(rate.n), str(rate.invalid))
    rate = rate_of(summary.overall)
    table.add_row("overall", rate.text(), str(rate.n), str(rate.invalid), style="bold")
    display.console.print(table)
