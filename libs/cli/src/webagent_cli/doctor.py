"""What this machine lacks for a configuration, and how to get it."""

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from webagent_runtime.config import ConfigError

from webagent_cli.config import LoopConfig, PortsConfig, load_loop, parse_settings
from webagent_cli.models import check_model, how_to_get
from webagent_cli.offers import check_offers
from webagent_cli.stack import HOST, nats_program

CHROMIUM_PLACES = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
MIN_MEMORY_GIB = 10.0
MIN_DISK_GIB = 5.0


class Health(StrEnum):
    """How a finding bears on a run."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `advice` says how to get what is missing."""

    name: str
    health: Health
    found: str
    advice: str = ""


def chromium_program(config: LoopConfig | None = None) -> Path | None:
    """The browser: as configured, else where distributions put it."""
    browser = config.stack.env.get("browser") if config else None
    stated = browser.get("executable") if isinstance(browser, dict) else None
    if stated:
        return Path(str(stated)) if Path(str(stated)).is_file() else None
    for place in CHROMIUM_PLACES:
        if Path(place).is_file():
            return Path(place)
    found = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    return Path(found) if found else None


def _chromium(config: LoopConfig) -> Finding:
    program = chromium_program(config)
    if program is None:
        return Finding(
            "chromium",
            Health.MISSING,
            "not found",
            "apt-get install chromium-headless-shell",
        )
    return Finding("chromium", Health.OK, str(program))


def _nats(_config: LoopConfig) -> Finding:
    try:
        return Finding("nats-server", Health.OK, nats_program())
    except ConfigError as error:
        return Finding("nats-server", Health.MISSING, "not found", str(error).partition(": ")[2])


def _model(config: LoopConfig) -> Finding:
    try:
        check_model(config.model)
    except ConfigError as error:
        made_by_us = config.model.prepare is not None and not config.model.path.exists()
        advice = "webagent train makes it" if made_by_us else how_to_get(config.model)
        return Finding("model", Health.NOTE if made_by_us else Health.MISSING, str(error).partition(": ")[0], advice)
    return Finding("model", Health.OK, str(config.model.path))


def _module(name: str, advice: str, health: Health) -> Callable[[LoopConfig], Finding]:
    def look(_config: LoopConfig) -> Finding:
        if importlib.util.find_spec(name) is None:
            return Finding(name, health, "not installed", advice)
        return Finding(name, Health.OK, "installed")

    return look


def _memory(_config: LoopConfig) -> Finding:
    free = psutil.virtual_memory().available / 2**30
    health = Health.OK if free >= MIN_MEMORY_GIB else Health.NOTE
    return Finding("memory", health, f"{free:.1f} GiB free", f"the quick run wants {MIN_MEMORY_GIB:.0f} GiB")


def _disk(_config: LoopConfig) -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    health = Health.OK if free >= MIN_DISK_GIB else Health.NOTE
    return Finding("disk", health, f"{free:.0f} GiB free here", f"a run writes up to {MIN_DISK_GIB:.0f} GiB")


def _cores(_config: LoopConfig) -> Finding:
    return Finding("cores", Health.OK, str(len(os.sched_getaffinity(0))))


def _ports(config: LoopConfig) -> Finding:
    used = []
    for name in PortsConfig.model_fields:
        with socket.socket() as probe:
            port = getattr(config.stack.ports, name)
            if probe.connect_ex((HOST, port)) == 0:
                used.append(f"{port} ({name})")
    if used:
        return Finding(
            "ports", Health.NOTE, f"in use: {', '.join(used)}", "webagent train picks free ones; up needs these"
        )
    return Finding("ports", Health.OK, "all free")


def _python(_config: LoopConfig) -> Finding:
    return Finding("python", Health.OK, ".".join(map(str, sys.version_info[:3])))


def examine(config: LoopConfig) -> list[Finding]:
    """Looks at everything that a run with this configuration needs."""
    without_vllm = config.stack.inference.get("backend") == "transformers"
    no_vllm = "make setup; without it set stack.inference.backend to transformers"
    looks: list[Callable[[LoopConfig], Finding]] = [
        _python,
        _cores,
        _memory,
        _disk,
        _chromium,
        _nats,
        _module("playwright", "make setup", Health.MISSING),
        _module("miniwob", "make setup", Health.MISSING),
        _ports,
    ]
    if config.stack.serves_model:
        looks += [
            _model,
            _module("torch", "make setup", Health.MISSING),
            _module("vllm", no_vllm, Health.NOTE if without_vllm else Health.MISSING),
            _module("deepspeed", "make setup", Health.MISSING),
        ]
    return [look(config) for look in looks]


def refuse_missing(config: LoopConfig) -> None:
    """Fails with one line that names what is missing and how to get it."""
    for finding in examine(config):
        if finding.health is Health.MISSING:
            raise ConfigError(f"{finding.name}: {finding.found}: {finding.advice}")


def doctor(path: Path, *, settings: list[str]) -> None:
    """Prints all findings; exit code 2 if something is missing."""
    config = load_loop(path, parse_settings(settings))
    check_offers(config)
    findings = examine(config)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    marks = {Health.OK: "[green]ok[/]", Health.NOTE: "[yellow]note[/]", Health.MISSING: "[red]missing[/]"}
    for finding in findings:
        advice = "" if finding.health is Health.OK else finding.advice
        table.add_row(marks[finding.health], finding.name, finding.found, advice)
    Console().print(table)
    missing = [finding.name for finding in findings if finding.health is Health.MISSING]
    if missing:
        raise ConfigError(f"missing for {path}: {', '.join(missing)}")
