"""Watching a reply while it is sampled: to hand tokens on at once, and to end it at a stop string.

Stop strings are looked for here, above the backends, so that all of them end a reply at the same token: the one that
completes the string in the reply's text. Tokens that an engine sampled beyond it were never part of the reply.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from webagent_inference.backend import Finish, Sample, Sink

# Whether the reply ends with the last of these tokens.
Ended = Callable[[Sequence[int]], bool]


class Watch:
    """The sink of one call of a backend."""

    def __init__(self, before: Sequence[int], ended: Ended | None, sink: Sink | None) -> None:
        self._all = list(before)
        self._ended = ended
        self._sink = sink
        self._stopped = asyncio.Event()
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []

    def __call__(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Hears tokens."""
        for index, token in enumerate(token_ids):
            if self._stopped.is_set():
                return
            logprob = logprobs[index : index + 1]
            self._all.append(token)
            self._token_ids.append(token)
            self._logprobs += logprob
            if self._sink is not None:
                self._sink([token], logprob)
            if self._ended is not None and self._ended(self._all):
                self._stopped.set()

    async def over(self, generating: Coroutine[Any, Any, Sample]) -> Sample:
        """What is sampled, up to the token that ends the reply."""
        sampling = asyncio.create_task(generating)
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({sampling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not self._stopped.is_set():
                return sampling.result()
            cached, degraded = 0, ""
            if sampling.done():
                cached, degraded = sampling.result().cached_tokens, sampling.result().degraded
            return Sample(self._token_ids, self._logprobs, Finish.STOP, cached, degraded)
        finally:
            stopping.cancel()
            sampling.cancel()
            await asyncio.wait({sampling})


class Stops:
    """Stop strings of one request."""

    def __init__(self, strings: Sequence[str], text: Callable[[Sequence[int]], str]) -> None:
        self._strings = strings
        self._text = text
        # No token is shorter than a byte, but for special ones, of which a few may lie between.
        self._window = max(len(string.encode()) for string in strings) + 16

    def ended(self, token_ids: Sequence[int]) -> bool:
        """Whether the last token completes one of the strings."""
        tail = self._text(token_ids[-self._window :])
        return any(string in tail for string in self._strings)

    def cut(self, text: str) -> str:
        """The text before the first of the strings."""
        found = [at for at in (text.find(string) for string in self._strings) if at >= 0]
        return text[: min(found)] if found else text
