"""Tasks on web sites: a list of tasks, the sites that they play on, and how they are judged.

The lists come from WebArena's task files or from a YAML file of one's own (see `task_files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from playwright.async_api import Error

from webagent_env import errors
from webagent_env.browser import Browser
from webagent_env.context import SessionContext
from webagent_env.page import Tab
from webagent_env.sites import Site, merged
from webagent_env.tasks import Claim, Rule, Task

log = structlog.get_logger()

_LOADS = 2


@dataclass(frozen=True, slots=True)
class SiteTask:
    """One task. Its first start address is the tab that the agent begins on."""

    task: Task
    start_urls: tuple[str, ...]
    instruction: str
    rule: Rule | None
    sites: tuple[str, ...]
    changes_state: bool = False
    hosts: tuple[str, ...] = ()


class SiteClaim(Claim):
    """A session's places on its sites, and its logins there."""

    def __init__(self, sites: list[Site], *, changes: bool) -> None:
        self._sites = sites
        self._changes = changes
        self._entered: list[Site] = []
        self._logins: list[tuple[Site, dict[str, Any]]] = []

    async def take(self, browser: Browser) -> None:
        """Takes everything, or nothing and says why."""
        try:
            for site in self._sites:
                site.enter(changes=self._changes)
                self._entered.append(site)
            await asyncio.gather(*(site.require_health() for site in self._sites))
            for site in self._sites:
                self._logins.append((site, await site.take_login(browser)))
        except BaseException:
            await self.release()
            raise
        self.storage_state = merged([state for _, state in self._logins])

    async def require_health(self, tab: Tab) -> None:
        """Asks the sites once the tab shows an error page: where all of them are well, that page is the agent's."""
        if await tab.failed():
            await asyncio.gather(*(site.require_health(again=True) for site in self._sites))

    async def release(self) -> None:
        """Gives everything back; the second time, nothing."""
        for site, state in self._logins:
            site.give_login(state)
        for site in self._entered:
            site.leave(changes=self._changes, played=self.played)
        self._logins, self._entered = [], []


class SiteSuite:
    """A suite of tasks on sites."""

    ended = "() => false"
    hidden: tuple[str, ...] = ()
    init_script = ""
    centres_only = False
    reuses_contexts = False
    origin = ""

    def __init__(self, name: str, tasks: list[SiteTask], sites: Mapping[str, Site], viewport: tuple[int, int]) -> None:
        self.name = name
        self.viewport = viewport
        self._tasks = {each.task.task_id: each for each in tasks}
        self._sites = sites

    async def start(self) -> None:
        """The sites run by themselves."""

    async def stop(self) -> None:
        """Ends resets that are under way."""
        await asyncio.gather(*(site.stop() for site in self._sites.values()))

    async def resets(self) -> None:
        """Waits until no site is being reset."""
        await asyncio.gather(*(site.resetting for site in self._sites.values() if site.resetting is not None))

    def tasks(self) -> list[Task]:
        """All tasks, in the order of their file."""
        return [each.task for each in self._tasks.values()]

    def hosts(self, task: Task) -> tuple[str, ...]:
        """Those of the task's sites, and what the task names itself."""
        one = self._tasks[task.task_id]
        return tuple(dict.fromkeys((*(host for name in one.sites for host in self._sites[name].hosts), *one.hosts)))

    async def claim(self, task: Task, browser: Browser) -> Claim:
        """Takes a place on each of the task's sites, signed in."""
        one = self._tasks[task.task_id]
        claim = SiteClaim([self._sites[name] for name in one.sites], changes=one.changes_state)
        await claim.take(browser)
        return claim

    async def reset(self, context: SessionContext, task: Task, seed: int, claim: Claim) -> str:
        """Opens the start pages, each in a tab; the first one is shown."""
        one = self._tasks[task.task_id]
        first = await context.active()
        for number, url in enumerate(one.start_urls):
            await self._load(first if number == 0 else await context.open_tab(), url, one.task.site or self.name)
        context.turn_to(first)
        return one.instruction

    def rule(self, task: Task, seed: int) -> Rule | None:
        """The task's own."""
        return self._tasks[task.task_id].rule

    async def _load(self, tab: Tab, url: str, site: str) -> None:
        why = ""
        for _ in range(_LOADS):
            try:
                response = await tab.page.goto(url, wait_until="load")
            except Error as error:
                if tab.gone():
                    raise
                why = error.message.splitlines()[0]
                continue
            status = response.status if response is not None else 200
            if status < 500 and status != 403:
                return
            why = f"{url} answers {status}"
            if status == 403 and response is not None:
                why += f": {(await response.text())[:200]}"
        raise errors.site_unavailable(site, why)
