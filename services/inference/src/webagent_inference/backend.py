"""What the service needs of an engine, whatever computes the policy.

A backend serves one set of weights at a time and knows no version numbers. `interrupt` is how weights change under
requests in flight: every `generate` returns what it has sampled so far, marked INTERRUPTED, every `score` raises
Interrupted, and the caller asks again, with the tokens so far in the prompt. So one answer of a backend never mixes
weights. While `load` and `reset_cache` run the caller keeps requests away.

`abilities` says what can be asked: nothing calls `score` without SCORES, or `load` without WEIGHTS.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIN_TEMPERATURE = 0.01

# Called with tokens as they are sampled and their log-probabilities, in the event loop, before `generate` returns.
Sink = Callable[[Sequence[int], Sequence[float]], None]


class Ability(enum.Enum):
    """What a backend can do beyond giving replies."""

    TOKEN_IDS = "token ids"  # noqa: S105 - no password
    LOGPROBS = "log-probabilities"
    SCORES = "scores"
    WEIGHTS = "weights"
    REPEATABLE = "repeatable"


FULL = frozenset(Ability)
# What replies need to be trained on.
TRAINABLE = frozenset({Ability.TOKEN_IDS, Ability.LOGPROBS})


class Finish(enum.Enum):
    """Why sampling ended."""

    STOP = "stop"
    LENGTH = "length"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; temperature 0 is greedy, else at least MIN_TEMPERATURE."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Tokens, the log-probability of each under what it was drawn from, and why there are no more.

    `degraded` says why they cannot be trained on; without log-probabilities the list of them is empty.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish: Finish
    cached_tokens: int = 0
    degraded: str = ""


class EngineDeadError(Exception):
    """The engine crashed and will not answer again."""


class Interrupted(Exception):  # noqa: N818 - control flow, not a failure
    """The work was dropped by `interrupt` and can be asked for again."""


class Backend(Protocol):
    """An engine with the model loaded."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What can be asked of it."""

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """Samples until an end token or max_tokens. Cancelling it frees its slot.

        Stop strings are watched for above; a backend may pass over them.
        """

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """Raw log-probabilities of the tokens after the prompt."""

    async def interrupt(self) -> None:
        """Returns once nothing is in flight."""

    async def load(self, directory: Path) -> None:
        """Replaces the weights by those in the directory's safetensors files."""

    async def reset_cache(self) -> bool:
        """Empties the prefix cache; says whether it is empty."""

    async def died(self) -> str:
        """Returns, with the cause, when the engine is dead."""

    async def close(self) -> None:
        """Ends the engine and all its processes."""
