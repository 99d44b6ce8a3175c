"""New weights as one transaction.

    IDLE ──► STAGING ──► VERIFYING ──► SWITCHING ──► PROVING ──► IDLE, the new version serves
               │             │             │            │
               └── refused ──┘             └─ROLLING_BACK┘ ──► IDLE, the old version serves; the error says why
                                                └─ fails ──► the policy fails: another engine is started

While staging and verifying the old version serves. Then requests are interrupted and wait at the policy's gate. The
first canary's prompt is put into the prefix cache under the old weights, the weights are replaced, the cache is reset,
and each canary is generated greedily and scored; of the first one's prompt nothing may be cached. Only then are
requests let in. A transaction runs in a task of its own: a caller who goes away does not tear it apart.
"""

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.errors import ServiceError

from webagent_inference import adapters, errors
from webagent_inference import version as versions
from webagent_inference.backend import Ability, Backend, Sample, Sampling
from webagent_inference.config import UpdateConfig
from webagent_inference.policy import Policy, Version

log = structlog.get_logger()


class Stage(enum.Enum):
    """Where a transaction is."""

    IDLE = "idle"
    STAGING = "staging"
    VERIFYING = "verifying"
    SWITCHING = "switching"
    PROVING = "proving"
    ROLLING_BACK = "rolling_back"


@dataclass(frozen=True)
class Outcome:
    """What the newest transaction left: the served version, and why `failed_version` is not it."""

    served: Version
    error: str = ""
    failed_version: int = 0


class Updater:
    """Applies versions, one at a time."""

    def __init__(self, policy: Policy, base: Path | None, config: UpdateConfig, *, threads: int) -> None:
        self._policy = policy
        self.config = config
        self._threads = threads
        self._shapes = versions.base_shapes(base) if base is not None else {}
        self._base = self._directory = base or Path()
        self._previous = self._directory
        self._canaries: Sequence[policy_pb2.Canary] = ()
        self._staging = versions.Staging(config.staging)
        self._digests: dict[int, str] = {}
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[float]] = set()
        self.seconds: dict[str, float] = {}
        self._entered = 0.0
        self.stage = Stage.IDLE
        self.outcome = Outcome(policy.version)
        self.changed = asyncio.Event()
        self.changed.set()

    async def apply(self, number: int, uri: str, digest: str) -> float:
        """Seconds until the version was served; 0 when it was already. Idempotent by number and digest."""
        if Ability.WEIGHTS not in self._policy.backend.abilities:
            raise errors.unsupported("takes no new weights")
        task = asyncio.create_task(self._apply(number, uri, digest))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def restore(self, start: Callable[[], Awaitable[Backend]]) -> None:
        """Has a new engine serve, in the place of one that died, the version that was served last."""
        async with self._lock:
            await self._policy.backend.close()
            backend = self._policy.backend = await start()
            if self._canaries:
                await backend.load(self._directory)
                if not await backend.reset_cache():
                    raise errors.cache_not_reset()
            for canary in self._canaries:
                await self._prove(canary)
            self._policy.revived()
        log.info("engine_restored", version=self._policy.version.number)

    async def idle(self) -> None:
        """Waits for transactions that run."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, task: "asyncio.Task[float]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Logged where it was raised; the caller may have gone away and will not look.
            task.exception()

    async def _apply(self, number: int, uri: str, digest: str) -> float:
        started = time.monotonic()
        async with self._lock:
            wanted = Version(number, digest)
            if self._policy.version == wanted:
                return 0.0
            try:
                if self._digests.get(number, digest) != digest:
                    raise errors.version_conflict(number)
                await self._transact(wanted, uri)
            except ServiceError as error:
                self._settle(Outcome(self._policy.version, str(error), number))
                log.warning("weights_refused", version=number, served=self._policy.version.number, error=str(error))
                raise
            self._digests[number] = digest
            seconds = time.monotonic() - started
            stages = {f"{stage}_seconds": round(spent, 3) for stage, spent in self.seconds.items()}
            log.info("weights_served", version=number, seconds=round(seconds, 3), **stages)
            self._settle(Outcome(wanted))
            return seconds

    async def _transact(self, wanted: Version, uri: str) -> None:
        self.seconds = {}
        try:
            async with asyncio.timeout(self.config.update_seconds) as bound:
                self._enter(Stage.STAGING)
                staged = await asyncio.to_thread(versions.stage, uri, wanted.number, wanted.digest, self._staging)
                self._check_canaries(staged.manifest.canaries)
                self._enter(Stage.VERIFYING)
                staged = await asyncio.to_thread(self._verified, staged)
                self._enter(Stage.SWITCHING)
                patience = self.config.finish_seconds if self.config.in_flight == "finish" else 0.0
                async with self._policy.held(patience):
                    await self._switch(staged, wanted, bound)
        except TimeoutError:
            raise errors.update_failed(f"not served within {self.config.update_seconds:g} s") from None
        except ServiceError:
            raise
        except Exception as error:
            log.exception("update_failed", version=wanted.number, stage=self.stage.value)
            raise errors.update_failed(f"{self.stage.value}: {type(error).__name__}: {error}") from error
        finally:
            self._enter(Stage.IDLE)
            # What the served version and the one before it do not need: older ones, and what failed just now.
            keep = [self._directory, self._previous]
            await asyncio.to_thread(self._staging.forget, keep)

    def _verified(self, staged: versions.StagedVersion) -> versions.StagedVersion:
        """The version as a whole model, its files checked; an adapter is merged into the base."""
        if not staged.manifest.HasField("adapter"):
            versions.verify(staged, self._shapes, self._threads)
            return staged
        shapes = adapters.expected(staged.manifest, self._shapes)
        versions.verify(staged, shapes, self._threads)
        return adapters.merged(staged, self._base, self._staging)

    async def _switch(self, staged: versions.StagedVersion, wanted: Version, bound: asyncio.Timeout) -> None:
        backend = self._policy.backend
        first, *others = staged.manifest.canaries
        try:
            await self._greedy(first, 1)
            await backend.load(staged.directory)
            if not await backend.reset_cache():
                raise errors.cache_not_reset()
            self._enter(Stage.PROVING)
            if await self._prove(first):
                raise errors.cache_not_reset()
            # What these find in the cache was computed for the first one, under the new weights.
            await asyncio.gather(*(self._prove(canary) for canary in others))
        except BaseException:
            # What is left of the update's bound must not cut the way back, which has one of its own.
            if not bound.expired():
                bound.reschedule(None)
            await self._roll_back()
            raise
        self._previous, self._directory = self._directory, staged.directory
        self._canaries = tuple(staged.manifest.canaries)
        self._policy.switched(wanted)

    async def _roll_back(self) -> None:
        """Puts the old weights back, or fails the policy: nobody vouches for what the engine holds."""
        self._enter(Stage.ROLLING_BACK)
        try:
            async with asyncio.timeout(self.config.update_seconds):
                await self._policy.backend.load(self._directory)
                reset = await self._policy.backend.reset_cache()
        except Exception as error:
            log.exception("roll_back_failed", directory=str(self._directory))
            self._policy.fail(f"the old weights could not be put back: {error}")
            return
        if not reset:
            self._policy.fail("the prefix cache could not be reset after the old weights were put back")

    async def _prove(self, canary: policy_pb2.Canary) -> int:
        """Raises unless the weights compute the canary; the number of prompt tokens that were cached."""
        sample = await self._greedy(canary, len(canary.token_ids))
        scores = sample.logprobs
        if sample.token_ids != list(canary.token_ids):
            # Greedy log-probabilities are scores, of the tokens that were sampled. These are other ones.
            scores = await self._policy.backend.score(canary.prompt_token_ids, canary.token_ids)
        worst = max(abs(ours - theirs) for ours, theirs in zip(scores, canary.logprobs, strict=True))
        if not worst <= canary.tolerance:
            raise errors.canary_mismatch(f"a log-probability is off by {worst:.4g}, {canary.tolerance:.4g} is allowed")
        _check_greedy(canary, sample, scores)
        log.debug("canary_passed", worst=worst)
        return sample.cached_tokens

    async def _greedy(self, canary: policy_pb2.Canary, tokens: int) -> Sample:
        sampling = Sampling(temperature=0.0, max_tokens=tokens)
        return await self._policy.backend.generate("canary", canary.prompt_token_ids, sampling)

    def _check_canaries(self, canaries: Iterable[policy_pb2.Canary]) -> None:
        usable = 0
        for canary in canaries:
            tokens = [*canary.prompt_token_ids, *canary.token_ids]
            if not canary.prompt_token_ids or not canary.token_ids or len(canary.logprobs) != len(canary.token_ids):
                raise errors.canary_mismatch("a canary is incomplete")
            if len(tokens) >= self._policy.max_context or max(tokens) >= self._policy.vocab_size:
                raise errors.canary_mismatch("a canary does not fit the model")
            usable += 1
        if not usable:
            raise errors.canary_mismatch("the manifest has no canary; weights that prove nothing are not served")

    def _enter(self, stage: Stage) -> None:
        now = time.monotonic()
        if self.stage is not Stage.IDLE:
            self.seconds[self.stage.value] = now - self._entered
        self._entered = now
        self.stage = stage

    def _settle(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.changed.set()


def _check_greedy(canary: policy_pb2.Canary, sample: Sample, scores: list[float]) -> None:
    """Equal to the canary's tokens up to a near tie: two tokens whose log-probabilities the tolerance cannot tell."""
    for index, wanted in enumerate(canary.token_ids):
        if index >= len(sample.token_ids):
            raise errors.canary_mismatch(f"greedy text ended after {index} tokens ({sample.finish.value})")
        if sample.token_ids[index] != wanted:
            if sample.logprobs[index] - scores[index] <= canary.tolerance:
                return
            raise errors.canary_mismatch(f"greedy token {index} is {sample.token_ids[index]} instead of {wanted}")
