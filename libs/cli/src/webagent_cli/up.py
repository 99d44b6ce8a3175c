"""`webagent up`: the local stack on its default ports, until Ctrl-C."""

import asyncio
from pathlib import Path

from rich.console import Console

from webagent_cli.config import SERVICES, load_loop, parse_settings
from webagent_cli.doctor import refuse_missing
from webagent_cli.models import prepare_model
from webagent_cli.offers import check_offers
from webagent_cli.runs import new_run, shown
from webagent_cli.stack import Stack, refuse_used_ports


def up(path: Path, *, runs: Path, settings: list[str]) -> None:
    """Starts everything, says where it listens, and watches it."""
    console = Console()
    config = load_loop(path, parse_settings(settings))
    check_offers(config)
    refuse_used_ports(config.stack.ports)
    prepare_model(config.model, console.print)
    refuse_missing(config)
    run = new_run(runs, None, label="up")
    run.config.write_text(config.to_yaml())
    with Stack(run, config, ports=config.stack.ports) as stack:
        stack.start_all(
            lambda service, seconds: console.print(f"  {service:<10} {stack.addresses.of(service)}  {seconds:.1f} s")
        )
        console.print(f"{len(SERVICES)} processes are up, logs in {shown(run.logs)}; Ctrl-C ends them")
        asyncio.run(stack.watch())
