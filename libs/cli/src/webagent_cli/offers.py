"""What the installed services offer, without starting them.

A task or prompt that does not exist, or a run that the trainer would not take, is refused when the configuration is
read, not ten minutes later. Where a package is not on this machine nothing can be said, and the service itself refuses.
"""

import difflib
import importlib.util
import tempfile
from collections.abc import Iterable
from pathlib import Path

from webagent_runtime.config import ConfigError, validate

from webagent_cli.config import LoopConfig
from webagent_cli.runs import Run
from webagent_cli.settings import trainer_run

THINKING = "_thinking"


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def tasks(suite: str) -> set[str] | None:
    """Task ids of a suite; None: not known here."""
    package = _package("miniwob") if suite == "miniwob" else None
    pages = package / "html" / "miniwob" if package else None
    if pages is None or not pages.is_dir():
        return None
    return {page.stem for page in pages.glob("*.html")}


def prompts() -> set[str] | None:
    """Prompts that rollout ships; None: not known here."""
    package = _package("webagent_rollout")
    files = list((package / "prompts").glob("*.txt")) if package else []
    return {file.stem.removesuffix(THINKING) for file in files} or None


def _refuse(kind: str, name: str, known: set[str]) -> None:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known)[:8])}, ..."
    raise ConfigError(f"unknown {kind} {name!r}: {hint}")


def check_offers(config: LoopConfig) -> None:
    """Fails with one line if the configuration names what does not exist or asks the trainer for what it refuses."""
    known_tasks, known_prompts = tasks(config.tasks.suite), prompts()
    for task in config.tasks.ids:
        if known_tasks is not None and task not in known_tasks:
            _refuse("task", task, known_tasks)
    if known_prompts is not None and config.agent.prompt not in known_prompts:
        _refuse("prompt", config.agent.prompt, known_prompts)
    _check_run(config)


def check_experts(suite: str, tasks: Iterable[str]) -> None:
    """Fails with one line if the scripted experts, who make demonstrations, do not play these tasks."""
    if _package("webagent_rollout") is None:
        return
    from webagent_rollout.experts import EXPERTS  # noqa: PLC0415  need not be installed

    if lacking := [task for task in tasks if f"{suite}/{task}" not in EXPERTS]:
        raise ConfigError(f"no scripted expert plays {', '.join(lacking)} of {suite}: leave out such tasks")


def _check_run(config: LoopConfig) -> None:
    """The trainer's own check of the run: methods and their settings are known there alone."""
    if _package("webagent_trainer") is None:
        return
    from webagent_trainer.config import RunConfig  # noqa: PLC0415  need not be installed

    validate(RunConfig, trainer_run(Run(Path(tempfile.gettempdir()) / "check"), config), source="trainer")
