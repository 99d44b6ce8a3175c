"""MiniWoB++: the pages of the PyPI package `miniwob`, served by this service, seeded and without their clock.

The same task and seed give the same page: the page's random numbers are seeded from document start (by its address) and
again when the episode starts, and its wall clock starts at a fixed moment. The page's own time limit is set beyond any
session's lifetime, and never cleared, because a page without a running limit pays nothing; the reward read is the raw
one, which does not decay. The instruction is read from the page once, so the box that shows it is left out of
observations, as are the displays beside the task.

The package is found without being imported: its requirements (gymnasium, selenium) are not needed for its pages.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from playwright.async_api import Error
from webagent_runtime.config import ConfigError

from webagent_env import errors
from webagent_env.browser import Browser
from webagent_env.cdp import DocumentReplacedError, ScriptError
from webagent_env.context import SessionContext
from webagent_env.site import StaticSite
from webagent_env.tasks import Claim, NativeRule, Task

_LARGEST_EXACT_INTEGER = 2**53
# Milliseconds, 23 days: far beyond any session, and small enough for a timer's 32 bits.
_EPISODE_MAX_TIME = 2_000_000_000
_CLOCK_START = 1_483_272_000_000  # 2017-01-01 12:00 UTC, amid the dates that the pages are about

_REWARD = (
    '({done: typeof WOB_DONE_GLOBAL !== "undefined" && WOB_DONE_GLOBAL === true,'
    ' reward: typeof WOB_RAW_REWARD_GLOBAL === "number" ? WOB_RAW_REWARD_GLOBAL : 0})'
)
# Most pages pay 1 for success and nothing positive else. Checkbox, number and card pages pay a part for a part, which
# is no success. These grade how near an answer came and hardly ever pay 1.
_FULL_REWARD = 0.999
_GRADED = {
    "bisect-angle": 0.8,
    "button-delay": 0.5,
    "chase-circle": 0.8,
    "circle-center": 0.8,
    "draw-circle": 0.8,
    "draw-line": 0.8,
    "find-midpoint": 0.8,
    "hot-cold": 0.5,
    "moving-items": 0.001,
    "right-angle": 0.8,
}

_INIT_SCRIPT = """
({ clock }) => {
  const seed = location.pathname + location.search;
  // Used while the page's scripts load; starting the episode seeds the page's own generator.
  let state = [...seed].reduce((hash, digit) => (Math.imul(hash ^ digit.charCodeAt(0), 16777619) >>> 0), 2166136261);
  Math.random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const RealDate = Date;
  const offset = clock - RealDate.now();
  const now = () => RealDate.now() + offset;
  window.Date = new Proxy(RealDate, {
    construct: (target, given, derived) => Reflect.construct(target, given.length ? given : [now()], derived),
    apply: () => new RealDate(now()).toString(),
    get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
  });
}
"""

_START = """
(async ({ seed, limit }) => {
  Math.seedrandom(seed);
  core.setDataMode("train");
  core.EPISODE_MAX_TIME = limit;
  core.startEpisodeReal();
  // Focusing a dialog wider than the page scrolls it sideways.
  window.scrollTo(0, 0);
  while (!WOB_TASK_READY) await new Promise(requestAnimationFrame);
  const utterance = core.getUtterance();
  return typeof utterance === "string" ? utterance : utterance.utterance;
})
"""


class MiniWob:
    """The suite "miniwob"; task ids are the pages' file names."""

    name = "miniwob"
    viewport = (160, 210)
    ended = '() => typeof WOB_DONE_GLOBAL !== "undefined" && WOB_DONE_GLOBAL === true'
    hidden: tuple[str, ...] = ("#query", "#reward-display", "#click-canvas", "#sync-task-cover")

    init_script = f"({_INIT_SCRIPT})({json.dumps({'clock': _CLOCK_START})})"
    centres_only = True
    reuses_contexts = True
    # Where a task's page lies in the package.
    page = "miniwob/{}.html"

    def __init__(self) -> None:
        self._html = _find_pages()
        self._site = StaticSite(self._html)
        before, after = self.page.split("{}")
        paths = sorted(path.relative_to(self._html).as_posix() for path in self._html.glob(self.page.format("*")))
        self._tasks = [Task(self.name, path.removeprefix(before).removesuffix(after)) for path in paths]

    async def start(self) -> None:
        """Serves the pages on a loopback port."""
        await self._site.start()

    async def stop(self) -> None:
        """Stops serving."""
        await self._site.stop()

    def tasks(self) -> list[Task]:
        """All pages, by name."""
        return list(self._tasks)

    @property
    def origin(self) -> str:
        """Where the pages are served."""
        return self._site.url

    def hosts(self, task: Task) -> tuple[str, ...]:
        """The suite's own pages."""
        return (self._site.url.removeprefix("http://"),)

    async def claim(self, task: Task, browser: Browser) -> Claim:
        """Nothing is shared."""
        return Claim()

    async def reset(self, context: SessionContext, task: Task, seed: int, claim: Claim) -> str:
        """Loads the page and starts its episode."""
        tab = await context.active()
        exact = seed if seed <= _LARGEST_EXACT_INTEGER else str(seed)
        start = json.dumps({"seed": exact, "limit": _EPISODE_MAX_TIME})
        try:
            await tab.page.goto(f"{self._site.url}/{self.page.format(task.task_id)}?seed={seed}", wait_until="load")
            instruction = await tab.evaluate(f"{_START}({start})")
        except (Error, ScriptError, DocumentReplacedError) as error:
            raise errors.browser_unavailable(f"{task} did not start: {error}") from error
        return str(instruction)

    def rule(self, task: Task, seed: int) -> NativeRule:
        """The raw reward, against the task's own threshold."""
        return NativeRule(_REWARD, _GRADED.get(task.task_id, _FULL_REWARD))


class FlightWob(MiniWob):
    """The suite "flight": the booking pages of airlines in the same package; task ids are the names of their folders.

    The airline's page is in a frame, whose clock begins on 2017-03-01; the instruction is the page's fields as JSON.
    """

    name = "flight"
    viewport = (375, 667)
    page = "flight/{}/wrapper.html"


def _find_pages() -> Path:
    spec = importlib.util.find_spec("miniwob")
    locations = list(spec.submodule_search_locations or []) if spec is not None else []
    for location in locations:
        if (Path(location) / "html" / "miniwob").is_dir():
            return Path(location) / "html"
    raise ConfigError("the package miniwob is missing: install it with `pip install --no-deps miniwob`")
