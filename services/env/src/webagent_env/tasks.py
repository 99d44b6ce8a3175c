"""Tasks: what a suite offers, and how a session starts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from webagent_env.browser import Browser
    from webagent_env.context import SessionContext
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


@dataclass(frozen=True, slots=True)
class WebArenaRule:
    """WebArena's `eval` object, to be read in one of its dialects."""

    eval_json: str
    intent: str
    dialect: Literal["webarena", "vab_lite", "verified"]
    # Each placeholder, such as __SHOPPING__, and the address that stands for it.
    site_urls: tuple[tuple[str, str], ...]


Rule = NativeRule | WebArenaRule


class Claim:
    """What a session holds of its task's sites; released when the session is gone. This one holds nothing."""

    # Cookies and storage to start with, as JSON; empty for none.
    storage_state = ""
    # Whether the session came to be: from then on its task may have changed the sites.
    played = False

    async def require_health(self, tab: Tab) -> None:
        """Raises if the tab shows no page of the task's because one of its sites is out of order."""

    async def release(self) -> None:
        """Gives everything back."""


class Suite(Protocol):
    """A family of tasks with one way of starting and judging them.

    `ended` is a JavaScript function of the page's own world that says whether the page ended the task; `hidden` are
    selectors of what observations leave out because the instruction says it already; `init_script` runs at document
    start of every page, before the page's own scripts. `centres_only`: elements are numbered by their centres alone,
    as the published observation does. `reuses_contexts`: the pages, all below `origin`, are the service's own, so that
    a wiped browser context may serve one session after another, and need no proxy in between.
    """

    name: str
    viewport: tuple[int, int]
    ended: str
    hidden: tuple[str, ...]
    init_script: str
    centres_only: bool
    reuses_contexts: bool

    @property
    def origin(self) -> str:
        """Scheme, host and port of the suite's pages, once started; empty where it has more than one."""

    async def start(self) -> None:
        """Makes the suite's pages available."""

    async def stop(self) -> None:
        """Takes them down."""

    def tasks(self) -> list[Task]:
        """All tasks, by name."""

    def hosts(self, task: Task) -> tuple[str, ...]:
        """Where a session of the task may go, as entries of an allow-list."""

    async def claim(self, task: Task, browser: Browser) -> Claim:
        """Takes what a session of the task needs of its sites, or says that they are busy or down."""

    async def reset(self, context: SessionContext, task: Task, seed: int, claim: Claim) -> str:
        """Opens the task on a blank tab and returns the instruction; `claim` is what `claim` gave the session."""

    def rule(self, task: Task, seed: int) -> Rule | None:
        """How the task is judged; None: it has no rule."""
