"""`webagent eval` and `webagent demos`: one phase of the loop by itself, on a stack without a trainer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from webagent_runtime.config import ConfigError

from webagent_cli.clients import Clients
from webagent_cli.comparison import compared, find_episodes
from webagent_cli.config import LoopConfig, load_loop, parse_settings
from webagent_cli.doctor import refuse_missing
from webagent_cli.evaluation import demonstrate, evaluation_jobs, play_phase, unsettled
from webagent_cli.models import prepare_model
from webagent_cli.offers import check_experts, check_offers
from webagent_cli.progress import Display
from webagent_cli.runs import Run, find_run, new_run
from webagent_cli.stack import Stack, free_ports
from webagent_cli.tables import sheet_of
from webagent_cli.who import SERVICES, Who


def evaluation(
    path: Path, who: Who, *, runs: Path, name: str | None, compare: list[str], published: bool, settings: list[str]
) -> None:
    """Plays the held-out seeds that have not been SCORED yet, and prints and writes the table."""
    display = Display()
    config, here = opened(path, who, runs=runs, name=name, label="eval", settings=settings)
    if published and config.tasks.suite == "miniwob":
        raise ConfigError("--published is for tasks on the paper's sites, and MiniWoB's are on none")
    others = [find_episodes(runs, other) for other in compare]
    player = who.player(here, config)
    phase, todo = player.phase, evaluation_jobs(config, player.phase)

    async def work(clients: Clients) -> None:
        outcomes = await play_phase(clients, player, todo, here.episodes(phase), display)
        mine = [outcomes[job.task, job.seed] for job in todo]
        rows = await compared(clients, {f"{here.id} {phase}": mine, **dict(others)})
        sheet = sheet_of(rows, published=published)
        display.console.print(sheet.rich())
        here.table(phase).write_text(sheet.markdown())
        display.say(f"episodes: {here.episodes(phase)}\ntable: {here.table(phase)}")

    play(here, config, who, display, work, lacking=bool(unsettled(player, todo, here.episodes(phase))))


def play(
    here: Run,
    config: LoopConfig,
    who: Who,
    display: Display,
    work: Callable[[Clients], Awaitable[None]],
    *,
    lacking: bool,
) -> None:
    """Does the work on what playing needs; where no episode is lacking, on what counting needs."""
    if lacking:
        prepare(config, display, experts=who.policy == "expert")
    with_stack(here, config, display, work, services=who.services() if lacking else ("evaluator",))


def opened(
    path: Path, who: Who, *, runs: Path, name: str | None, label: str, settings: list[str]
) -> tuple[LoopConfig, Run]:
    """The configuration, and the run that episodes are kept in: that of the policy, a named one, or a new one."""
    if who.run:
        trained = find_run(runs, who.run)
        return who.served(load_loop(trained.config, parse_settings(settings))), trained
    config = who.served(load_loop(path, parse_settings(settings)))
    if name is None or not (runs / name).exists():
        here = new_run(runs, name, label=label)
        here.config.write_text(config.to_yaml())
        return config, here
    here = find_run(runs, name)
    if here.config.read_text() != config.to_yaml():
        raise ConfigError(f"{name!r} was begun with another configuration: choose another --name")
    return config, here


def demonstrations(path: Path, *, runs: Path, run: str | None, settings: list[str]) -> None:
    """Has the scripted experts play; the successes are written as trajectories."""
    display = Display()
    config = load_loop(path, parse_settings(settings))
    prepare(config, display, experts=True)
    here = new_run(runs, run, label="demos")
    here.config.write_text(config.to_yaml())

    async def work(clients: Clients) -> None:
        kept = await demonstrate(clients, here, config, display)
        turns = sum(len(one.turns) for one in kept)
        display.say(f"{len(kept)} demonstrations, {turns} turns: {here.demos}")

    with_stack(here, config, display, work)


def prepare(config: LoopConfig, display: Display, *, experts: bool) -> None:
    """Makes sure that this machine has what playing needs."""
    check_offers(config)
    if experts:
        check_experts(config.tasks.suite, config.tasks.ids)
    if config.stack.serves_model:
        prepare_model(config.model, display.say)
    refuse_missing(config)


def with_stack(
    run: Run,
    config: LoopConfig,
    display: Display,
    work: Callable[[Clients], Awaitable[None]],
    *,
    services: tuple[str, ...] = SERVICES,
) -> None:
    """Does some work on a stack of the run's, of these services."""

    async def session(stack: Stack) -> None:
        async with Clients(stack.addresses) as clients:
            await work(clients)

    with Stack(run, config, ports=free_ports(), services=services) as stack:
        stack.start_all(lambda service, seconds: display.say(f"  {service:<10} ready after {seconds:.1f} s"))
        asyncio.run(stack.watched(session(stack)))
