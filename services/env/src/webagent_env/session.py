"""One session: its steps in order, each taken once, and everything that can go wrong told apart.

A step runs in a task of its own, so a caller that goes away in the middle changes nothing: the step ends, its outcome
is recorded, and a retry with the same index gets it. Errors are recorded likewise. After an environment fault (a dead
browser, a page that does not answer, a site that broke) every further call fails with that fault.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog
from webagent_runtime.errors import ServiceError

from webagent_env import errors
from webagent_env.actions import (
    Action,
    Click,
    Exit,
    Failed,
    Goto,
    Hover,
    Reason,
    Rejected,
    RightClick,
    Search,
    SelectDropdownOption,
    Type,
    Upload,
)
from webagent_env.cdp import DocumentReplacedError, PageGoneError, ScriptError
from webagent_env.context import SessionContext
from webagent_env.observation import Kind, Observation, Timings, View
from webagent_env.options import ContextOptions
from webagent_env.tasks import Claim, Suite, Task

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session was asked to be, defaults filled in; two equal requests have equal specs."""

    session_id: str
    task: Task
    seed: int
    view: View
    options: ContextOptions
    lease: float
    lifetime: float
    reset_timeout: float
    step_timeout: float
    settle_timeout: float

    @property
    def navigation_timeout(self) -> float:
        """Within the step's, so that a site that does not answer is the action's failure and no fault."""
        return (self.step_timeout - self.settle_timeout) / 2


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step led to. `action` is None when the text was none."""

    step_index: int
    action: Action | None
    refusal: Failed | Rejected | None
    observation: Observation
    terminated: bool
    truncated: bool
    timings: Timings
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What changed between the observations before and after an action."""

    url_changed: bool
    tabs_changed: bool
    text_changed: bool
    dialog_opened: bool
    downloaded: bool

    @classmethod
    def between(cls, before: Observation, after: Observation) -> Effect:
        """Compares two observations."""
        return cls(
            url_changed=before.url != after.url,
            tabs_changed=[tab.active for tab in before.tabs] != [tab.active for tab in after.tabs],
            text_changed=(before.text, before.axtree) != (after.text, after.axtree),
            dialog_opened=bool(after.dialogs),
            downloaded=bool(after.downloads),
        )


@dataclass(slots=True)
class _Record:
    asked: Action | str
    outcome: asyncio.Task[StepOutcome]


class Session:
    """A task being worked on in one browser context. Made by the pool, once the task's page is up."""

    def __init__(
        self,
        spec: SessionSpec,
        suite: Suite,
        context: SessionContext,
        claim: Claim,
        *,
        instruction: str,
        max_steps: int,
    ) -> None:
        self.spec = spec
        self.suite = suite
        self.claim = claim
        self.instruction = instruction
        self.observation = Observation()
        self.next_step_index = 0
        self.over = False
        self.fault: ServiceError | None = None
        self.created_at = datetime.now(UTC)
        self._born = time.monotonic()
        self._touched = self._born
        self._calls = 0
        self.context = context
        context.on_crash = lambda: self.lose("the page's process died")
        self._max_steps = max_steps
        self._records: dict[int, _Record] = {}
        self._current: asyncio.Task[StepOutcome] | None = None
        self._page = asyncio.Lock()

    # ---- lease -------------------------------------------------------------------------------------------------------
    def touch(self) -> None:
        """A call came: the lease starts anew."""
        self._touched = time.monotonic()

    def __enter__(self) -> None:
        """A call is in work; until it ends the lease does not run out."""
        self._calls += 1

    def __exit__(self, *_: object) -> None:
        self._calls -= 1
        self.touch()

    @property
    def expires(self) -> float:
        """When the session is to be closed, on the monotonic clock, were there no call from now on."""
        touched = time.monotonic() if self._calls else self._touched
        return min(self._born + self.spec.lifetime, touched + self.spec.lease)

    @property
    def lease_expires_at(self) -> datetime:
        """When the session is closed unless a call comes first."""
        end = min(self._born + self.spec.lifetime, self._touched + self.spec.lease)
        return self.created_at + timedelta(seconds=end - self._born)

    @property
    def expires_at(self) -> datetime:
        """When the session is closed in any case."""
        return self.created_at + timedelta(seconds=self.spec.lifetime)

    # ---- steps -------------------------------------------------------------------------------------------------------
    async def step(self, index: int, parsed: Action | Rejected, text: str) -> StepOutcome:
        """Takes step `index`, or returns what it led to when it was taken before."""
        asked = text if isinstance(parsed, Rejected | Upload) else parsed
        while True:
            record = self._records.get(index)
            if record is not None:
                if record.asked != asked:
                    raise errors.step_conflict(index)
                return await asyncio.shield(record.outcome)
            if self._current is None or self._current.done():
                break
            await asyncio.wait([self._current])
        self._raise_fault()
        if self.over:
            raise errors.episode_over(self.spec.session_id)
        if index != self.next_step_index:
            raise errors.step_out_of_order(self.next_step_index, index)
        self.next_step_index += 1
        taken = asyncio.create_task(self._guarded(lambda: self._take(index, parsed)), name=f"step-{index}")
        # A caller that went away leaves nobody to see the error; it is recorded all the same.
        taken.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._current = taken
        self._records[index] = _Record(asked, taken)
        return await asyncio.shield(taken)

    async def observe(self, kinds: frozenset[Kind]) -> Observation:
        """Reads the page as it is now; its numbers, if it shows any, replace those of the observation before."""
        return await self._guarded(lambda: self._read(self.spec.view.of(kinds)))

    async def first_observation(self) -> None:
        """Reads the page that the episode starts on."""
        self.observation, _, _ = await self.context.finish(self.spec.view, self.spec.settle_timeout)

    async def use(self, work: Callable[[SessionContext], Awaitable[T]]) -> T:
        """Runs work on the session's context while no step does; its bound is the caller's."""
        self._raise_fault()
        async with self._page:
            try:
                return await work(self.context)
            except PageGoneError as error:
                raise self._crash(str(error)) from error

    def lose(self, what: str) -> None:
        """What the session lives in died."""
        self._crash(what)

    async def stop(self) -> bool:
        """Ends what runs, and says whether the context was left in order."""
        self.context.closing.set()
        busy = self._page.locked()
        if self._current is not None and not self._current.done():
            self._current.cancel()
            await asyncio.wait([self._current])
        return self.fault is None and not busy

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        self._raise_fault()
        try:
            # The bound is the page's: calls that wait for one another say nothing against it.
            async with self._page, asyncio.timeout(self.spec.step_timeout):
                self._raise_fault()
                return await work()
        except TimeoutError:
            self.fault = self.fault or errors.step_timeout(self.spec.session_id, self.spec.step_timeout)
            raise self.fault from None
        except PageGoneError as error:
            raise self._crash(str(error)) from error

    async def _take(self, index: int, parsed: Action | Rejected) -> StepOutcome:
        action, rejected = self._admit(parsed)
        truncated = index + 1 >= self._max_steps
        self.over = self.over or truncated
        if action is None or rejected is not None:
            return StepOutcome(index, action, rejected, self.observation, False, truncated, Timings())
        started = time.monotonic()
        before = self.observation
        failed = await self.context.perform(action, self.spec.navigation_timeout)
        if isinstance(action, Upload):  # what is recorded needs no contents
            action = replace(action, files=tuple(replace(file, content=b"") for file in action.files))
        acted = time.monotonic() - started
        self.observation, ended, timings = await self.context.finish(self.spec.view, self.spec.settle_timeout)
        await self._require_health()
        timings.act = acted
        if ended is None:
            ended = await self._ask_whether_ended()
        terminated = ended or isinstance(action, Exit)
        self.over = self.over or terminated
        effect = Effect.between(before, self.observation)
        return StepOutcome(index, action, failed, self.observation, terminated, truncated, timings, effect)

    def _admit(self, parsed: Action | Rejected) -> tuple[Action | None, Rejected | None]:
        if isinstance(parsed, Rejected):
            return None, parsed
        if isinstance(parsed, Goto) and not self.spec.options.allow_goto:
            return parsed, Rejected(Reason.NOT_ALLOWED, "this session may not open addresses; use the page's links")
        if isinstance(parsed, Click | RightClick | Type | Search | Hover | SelectDropdownOption | Upload):
            labels = self.observation.labels
            if int(parsed.element) >= labels:
                there = f"its elements are 0 to {labels - 1}" if labels else "it has no numbered elements"
                message = f"the page has no element {parsed.element}; {there}"
                return parsed, Rejected(Reason.UNKNOWN_ELEMENT, message)
        return parsed, None

    async def _ask_whether_ended(self) -> bool:
        tab = await self.context.active()
        try:
            return bool(await tab.evaluate(self.suite.ended))
        except (ScriptError, DocumentReplacedError):
            return False

    async def _read(self, view: View) -> Observation:
        seen, _, _ = await self.context.finish(view, self.spec.settle_timeout)
        await self._require_health()
        if view.numbered:
            self.observation = seen
        return seen

    async def _require_health(self) -> None:
        try:
            await self.claim.require_health(await self.context.active())
        except ServiceError as error:
            log.warning("session_lost", session_id=self.spec.session_id, why=error.message)
            self.fault = self.fault or errors.site_lost(self.spec.session_id, error.message)
            raise self.fault from error

    def _raise_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _crash(self, what: str) -> ServiceError:
        if self.fault is None:
            log.warning("session_lost", session_id=self.spec.session_id, why=what)
            self.fault = errors.browser_crashed(self.spec.session_id, what)
        return self.fault
