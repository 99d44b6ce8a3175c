"""Tasks: what a suite offers, and how a session starts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from webagent_env.page import Tab


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a suite. `site` is empty where the suite has no sites."""

    suite: str
    task_id: str
    site: str = ""

    def __str__(self) -> str:
        return f"{self.suite}/{self.task_id}"


@dataclass(frozen=True, slots=True)
class NativeRule:
    """The page computes its own reward: success is `done` with at least this reward."""

    reward_javascript: str
    success_threshold: float


class Suite(Protocol):
    """A family of tasks with one way of starting and judging them.

    `ended` is a JavaScript function of the page's own world that says whether the page ended the task; `hidden` are
    selectors of what observations leave out because the instruction says it already; `init_script` runs at document
    start of every page, before the page's own scripts. `reuses_contexts`: the pages, all below `origin`, are the
    service's own, so that a wiped browser context may serve one session after another.
    """

    name: str
    viewport: tuple[int, int]
    ended: str
    hidden: tuple[str, ...]
    init_script: str
    reuses_contexts: bool

    @property
    def origin(self) -> str:
        """Scheme, host and port of the suite's pages, once started."""

    async def start(self) -> None:
        """Makes the suite's pages available."""

    async def stop(self) -> None:
        """Takes them down."""

    def tasks(self) -> list[Task]:
        """All tasks, by name."""

    async def reset(self, tab: Tab, task: Task, seed: int) -> str:
        """Opens the task on a blank tab and returns the instruction."""

    def rule(self, task: Task) -> NativeRule:
        """How the task is judged."""
