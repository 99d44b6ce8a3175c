"""Makes the suites that the configuration names."""

from __future__ import annotations

from webagent_runtime.config import ConfigError

from webagent_env.arena.catalogue import make_arena
from webagent_env.config import SuitesConfig
from webagent_env.miniwob import FlightWob, MiniWob
from webagent_env.task_files import load_own, load_webarena
from webagent_env.tasks import Suite


def make_suites(config: SuitesConfig) -> list[Suite]:
    """All suites; each name once."""
    suites: list[Suite] = [MiniWob(), FlightWob()] if config.miniwob else []
    suites += [make_arena()] if config.arena else []
    suites += [load_webarena(one) for one in config.webarena]
    suites += [load_own(path) for path in config.files]
    names = [suite.name for suite in suites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"suites: {', '.join(twice)} is there twice; give one of them another name")
    if not suites:
        raise ConfigError("suites: there is none; set suites.miniwob, suites.arena, suites.webarena or suites.files")
    return suites
