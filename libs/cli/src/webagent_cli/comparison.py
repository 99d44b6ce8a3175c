"""Evaluations side by side: which episodes belong to a name, and how two runs differ on the tasks that both played."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from webagent_runtime.config import ConfigError

from webagent_cli.clients import Clients
from webagent_cli.episodes import Trajectory, final_outcomes, of_last_settings
from webagent_cli.evaluation import sites_of, summarize
from webagent_cli.journal import read_episodes
from webagent_cli.runs import RESCORED, find_run
from webagent_cli.tables import Row, row_of


def find_episodes(runs: Path, name: str) -> tuple[str, list[Trajectory]]:
    """The evaluation that RUN or RUN:PHASE names, and its episodes; without a phase, the one played last.

    Where a phase was played under several settings, the last ones count, and the name says so.
    """
    run_name, _, phase = name.partition(":")
    run = find_run(runs, run_name)
    phases = run.evaluations()
    if phase not in phases:
        own = [each for each in phases if RESCORED not in each]
        if phase or not own:
            known = f": it has {', '.join(sorted(phases))}" if phases else ""
            raise ConfigError(f"run {run.id} has no evaluation {phase or 'yet'}{known}")
        phase = max(own, key=lambda each: phases[each].stat().st_mtime)
    episodes = read_episodes(phases[phase])
    last = of_last_settings(episodes)
    mark = "" if len(last) == len(episodes) else " (last settings)"
    return f"{run.id} {phase}{mark}", list(final_outcomes(last).values())


async def compared(clients: Clients, evaluations: Mapping[str, Sequence[Trajectory]]) -> list[Row]:
    """A row for each evaluation; the first one is paired with each other one."""
    sites = sites_of(episode for episodes in evaluations.values() for episode in episodes)
    (first, mine), *others = evaluations.items()
    rows = [row_of(first, await summarize(clients, mine, sites=sites))]
    for name, episodes in others:
        difference = (await summarize(clients, mine, episodes, sites=sites)).difference
        rows.append(row_of(name, await summarize(clients, episodes, sites=sites), difference))
    return rows
