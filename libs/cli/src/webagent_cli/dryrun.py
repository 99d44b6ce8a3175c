"""`train --dry-run`: everything that a run would do, resolved, checked and printed; nothing is started."""

import tempfile
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from webagent_cli.config import LoopConfig, SeedRange
from webagent_cli.doctor import Health, examine
from webagent_cli.estimate import estimate, trainer_parts
from webagent_cli.launch import launch_commands
from webagent_cli.models import shape_of
from webagent_cli.runs import Run
from webagent_cli.settings import service_settings, trainer_run


def _span(seeds: SeedRange, count: int | None = None) -> str:
    return f"{seeds.first}..{seeds.first + (count or seeds.count) - 1}"


def _episodes(config: LoopConfig) -> Table:
    table = Table("phase", "seeds", "episodes", title="Episodes", title_justify="left")
    tasks = len(config.tasks.ids)
    held_out = config.eval
    table.add_row("zero_shot", _span(held_out.seeds, held_out.zero_shot_seeds), str(tasks * held_out.zero_shot_seeds))
    table.add_row("demos", _span(config.demos.seeds), str(tasks * config.demos.seeds.count))
    table.add_row("bc evaluation", _span(held_out.seeds), str(tasks * held_out.seeds.count))
    an_iteration = config.rl.groups * config.rl.group_size
    table.add_row("rl", f"from {_span(config.rl.seeds)}", f"{config.rl.iterations} x {an_iteration}")
    table.add_row("rl evaluation", _span(held_out.seeds), str(tasks * held_out.seeds.count))
    return table


def _memory(config: LoopConfig) -> Table:
    table = Table("part", "accelerator GiB", "host GiB", title="Memory estimate", title_justify="left")
    shape = shape_of(config.model)
    if shape is None:
        table.add_row(f"unknown: {config.model.path} is not here and model.shape is not set", "", "")
        return table
    for need in (*trainer_parts(shape, config), *estimate(shape, config)):
        indented = need.part.startswith(" ")
        table.add_row(need.part, f"{need.device:.1f}", f"{need.host:.1f}", style="dim" if indented else None)
    table.add_row("parameters", f"{shape.parameters / 1e9:.2f} G", "", style="dim")
    return table


def print_plan(config: LoopConfig, console: Console) -> None:
    """Prints the plan. Ports and the run's directory are those that `up` would use."""
    run = Run(Path(tempfile.gettempdir()) / "dry-run")
    ports = config.stack.ports
    console.rule("configuration", align="left")
    console.print(config.to_yaml(), markup=False, highlight=False)
    for service, values in service_settings(run, config, ports).items():
        console.rule(f"config/{service}.yaml", align="left")
        console.print(yaml.safe_dump(values, sort_keys=False), markup=False, highlight=False)
    console.rule("StartRun", align="left")
    console.print(yaml.safe_dump(trainer_run(run, config), sort_keys=False), markup=False, highlight=False)
    console.print(_episodes(config))
    console.print(_memory(config))
    console.rule("by hand, in the run's directory", align="left")
    for command in launch_commands(config):
        console.print(command, markup=False, highlight=False, soft_wrap=True)
    for finding in examine(config):
        if finding.health is not Health.OK:
            console.print(
                f"{finding.health.value}: {finding.name}: {finding.found} ({finding.advice})", highlight=False
            )
    console.print("dry run: nothing was started")
