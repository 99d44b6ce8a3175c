"""The policy that a replica serves: requests in, tokens out, one weights version at a time.

    call ──► admitted (bounded) ──► slot (fair) ──► gate open? ──► backend ──► reply, one span per version
                                                        ▲  └── interrupted: back to the gate, tokens so far kept ──┘
                                                        │
                              pause, update: hold the gate, interrupt what is in flight, change weights, release

No request straddles a change of weights inside the engine: it is interrupted before, and goes on after with its tokens
in the prompt, so every span is exact. Versions change only while the gate is held and nothing is in flight. An update
may first let what is in flight end, for a bounded time.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from webagent_runtime.metrics import SERVED_VERSION

from webagent_inference import errors
from webagent_inference.backend import (
    MIN_TEMPERATURE,
    TRAINABLE,
    Ability,
    Backend,
    EngineDeadError,
    Finish,
    Interrupted,
    Sample,
    Sampling,
    Sink,
)
from webagent_inference.config import LimitsConfig
from webagent_inference.slots import Purpose, Slots
from webagent_inference.watch import Ended, Watch

T = TypeVar("T")

MAX_STOPS = 8
MAX_STOP_CHARACTERS = 128


@dataclass(frozen=True)
class Version:
    """Served weights; number 0 is the base model, which has no digest."""

    number: int = 0
    digest: str = ""


@dataclass(frozen=True)
class Span:
    """Tokens [start, end) come from this version."""

    start: int
    end: int
    version: int


@dataclass(frozen=True)
class Reply:
    """What was sampled, and how."""

    token_ids: list[int]
    logprobs: list[float]
    spans: list[Span]
    finish: Finish
    sampling: Sampling
    cached_tokens: int
    degraded: str


class Policy:
    """A backend, the version it serves, and the gate before it."""

    def __init__(
        self, backend: Backend, limits: LimitsConfig, *, slots: int, vocab_size: int, max_context: int
    ) -> None:
        self.backend = backend
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.version = Version()
        self._limits = limits
        self._slots = Slots(slots)
        self._holders: set[str] = set()
        self._changing = asyncio.Lock()
        self._interrupting = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._admissions = dict.fromkeys(Purpose, 0)
        self._working = 0
        self._still = asyncio.Event()
        self._still.set()
        self._done = asyncio.Event()
        self._done.set()
        self.draining = False
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        SERVED_VERSION.set(0)

    @property
    def paused(self) -> bool:
        """Whether an operator holds the gate."""
        return "pause" in self._holders

    async def generate(
        self,
        request_id: str,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        min_version: int = 0,
        purpose: Purpose = Purpose.EVALUATION,
        ended: Ended | None = None,
        sink: Sink | None = None,
    ) -> Reply:
        """Samples one reply, across changes of weights if they happen.

        It ends, too, with the first token at which `ended` says so of the tokens so far. `sink` hears each token.
        """
        sampling = self._fit(prompt, sampling)
        if purpose is Purpose.TRAINING and not self.backend.abilities >= TRAINABLE:
            lacking = sorted(ability.value for ability in TRAINABLE - self.backend.abilities)
            raise errors.degraded(f"the backend gives no {' and no '.join(lacking)}")
        made = _Made()
        async with self._admitted(purpose), self._slots.taken(purpose):
            while True:
                version = await self._serving(min_version)
                rest = _rest(sampling, len(made.token_ids))
                context = [*prompt, *made.token_ids]
                if ended is None and sink is None:
                    sample = await self._backed(self.backend.generate(request_id, context, rest))
                else:
                    watch = Watch(made.token_ids, ended, sink)
                    sample = await self._backed(watch.over(self.backend.generate(request_id, context, rest, watch)))
                made.add(sample, version)
                if sample.finish is not Finish.INTERRUPTED:
                    if purpose is Purpose.TRAINING and made.degraded:
                        raise errors.degraded(made.degraded)
                    return made.reply(sample.finish, sampling)

    async def score(
        self,
        prompt: Sequence[int],
        token_ids: Sequence[int],
        *,
        min_version: int,
        purpose: Purpose = Purpose.EVALUATION,
    ) -> tuple[list[float], int]:
        """Log-probabilities of the tokens and the version that computed all of them."""
        if Ability.SCORES not in self.backend.abilities:
            raise errors.unsupported("does not score")
        if not token_ids:
            raise errors.invalid("token_ids is empty")
        self._check([*prompt, *token_ids])
        async with self._admitted(purpose), self._slots.taken(purpose):
            while True:
                version = await self._serving(min_version)
                try:
                    return await self._backed(self.backend.score(prompt, token_ids)), version
                except Interrupted:
                    continue

    @asynccontextmanager
    async def held(self, patience: float = 0.0) -> AsyncIterator[None]:
        """Nothing is in flight, and nothing starts, while the block runs; blocks run one after the other.

        What is in flight gets `patience` seconds to end before it is interrupted.
        """
        async with self._changing:
            await self._hold("update", patience)
            try:
                yield
            finally:
                self._release("update")

    async def pause(self) -> None:
        """Stops taking new tokens until `resume`."""
        await self._hold("pause")

    def resume(self) -> None:
        """Undoes `pause`."""
        self._release("pause")

    def switched(self, version: Version) -> None:
        """Says what the backend serves from now on; only while held."""
        self.version = version
        SERVED_VERSION.set(version.number)

    def fail(self, cause: str) -> None:
        """Serves nothing any more: the engine is dead, or holds weights that nobody vouches for."""
        if not self._failure.done():
            self._failure.set_result(cause)

    def revived(self) -> None:
        """Serves again: `backend` is another one, and holds the weights of `version`."""
        self._failure = asyncio.get_running_loop().create_future()

    async def failed(self) -> str:
        """Returns, with the cause, once the policy cannot be served with this backend any more."""
        died = asyncio.ensure_future(self.backend.died())
        try:
            await asyncio.wait({died, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                self.fail(died.result())
        finally:
            died.cancel()
        return self._failure.result()

    async def drain(self) -> None:
        """Refuses new requests and waits for those in work."""
        self.draining = True
        self.resume()
        await self._done.wait()

    def _fit(self, prompt: Sequence[int], sampling: Sampling) -> Sampling:
        """The settings that can be honoured: refused when wrong, cut at the context's end."""
        temperature = sampling.temperature
        if not math.isfinite(temperature) or (temperature != 0 and temperature < MIN_TEMPERATURE):
            raise errors.unsupported_sampling(f"temperature {temperature:g}: 0, or at least {MIN_TEMPERATURE}")
        if not 0 < sampling.top_p <= 1:
            raise errors.unsupported_sampling(f"top_p {sampling.top_p:g} is not in (0, 1]")
        if sampling.max_tokens < 1:
            raise errors.unsupported_sampling("max_tokens is below 1")
        if len(sampling.stop) > MAX_STOPS or not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop):
            raise errors.unsupported_sampling(
                f"stop: at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters"
            )
        self._check(prompt)
        return replace(sampling, max_tokens=min(sampling.max_tokens, self.max_context - len(prompt)))

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise errors.invalid("prompt_token_ids is empty")
        if len(tokens) >= self.max_context:
            raise errors.prompt_too_long(len(tokens), self.max_context)
        highest = max(tokens)
        if highest >= self.vocab_size:
            raise errors.unknown_token(highest, self.vocab_size)

    @property
    def requests(self) -> int:
        """Requests in work or waiting."""
        return sum(self._admissions.values())

    @asynccontextmanager
    async def _admitted(self, purpose: Purpose) -> AsyncIterator[None]:
        if self.draining:
            raise errors.draining(self._limits.retry_seconds)
        # Each kind has a queue of its own: a full one of training's must not turn an evaluation away.
        if self._admissions[purpose] >= self._limits.max_requests:
            raise errors.queue_full(self._limits.max_requests, self._limits.retry_seconds)
        self._admissions[purpose] += 1
        self._done.clear()
        try:
            yield
        finally:
            self._admissions[purpose] -= 1
            if not self.requests:
                self._done.set()

    async def _serving(self, min_version: int) -> int:
        """Waits for the gate; the version behind it. The caller goes to the backend without awaiting in between."""
        while self._holders:
            await self._open.wait()
        if self._failure.done():
            raise errors.engine_dead(self._failure.result(), self._limits.retry_seconds)
        if self.version.number < min_version:
            raise errors.version_not_ready(min_version, self.version.number, self._limits.retry_seconds)
        return self.version.number

    async def _backed(self, work: Awaitable[T]) -> T:
        self._working += 1
        self._still.clear()
        try:
            return await work
        except EngineDeadError as error:
            self.fail(str(error))
            raise errors.engine_dead(str(error), self._limits.retry_seconds) from error
        finally:
            self._working -= 1
            if not self._working:
                self._still.set()

    async def _hold(self, holder: str, patience: float = 0.0) -> None:
        self._holders.add(holder)
        self._open.clear()
        try:
            if patience:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._still.wait(), patience)
            async with self._interrupting:
                # Only requests are interrupted, never what a held block asks of the backend; till all have noticed.
                while self._working:
                    await self.backend.interrupt()
                    await asyncio.sleep(0)
        except BaseException:
            self._release(holder)
            raise

    def _release(self, holder: str) -> None:
        self._holders.discard(holder)
        if not self._holders:
            self._open.set()


@dataclass
class _Made:
    """A reply in the making, sample by sample."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    cached_tokens: int | None = None
    degraded: str = ""

    def add(self, sample: Sample, version: int) -> None:
        if self.cached_tokens is None:
            self.cached_tokens = sample.cached_tokens
        start = len(self.token_ids)
        if sample.token_ids:
            self.spans.append(Span(start, start + len(sample.token_ids), version))
        self.token_ids = [*self.token_ids, *sample.token_ids]
        self.logprobs += sample.logprobs
        self.degraded = self.degraded or sample.degraded

    def reply(self, finish: Finish, sampling: Sampling) -> Reply:
        spans, cached = _joined(self.spans), self.cached_tokens or 0
        return Reply(self.token_ids, self.logprobs, spans, finish, sampling, cached, self.degraded)


def _rest(sampling: Sampling, sampled: int) -> Sampling:
    """Settings for the tokens after the first `sampled`; a seed must not draw the same numbers again."""
    if not sampled:
        return sampling
    seed = None if sampling.seed is None else hash((sampling.seed, sampled)) & ((1 << 63) - 1)
    return replace(sampling, max_tokens=sampling.max_tokens - sampled, seed=seed)


def _joined(spans: list[Span]) -> list[Span]:
    """Neighbours of one version as one span."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].version == span.version:
            joined[-1] = replace(joined[-1], end=span.end)
        else:
            joined.append(span)
    return joined
