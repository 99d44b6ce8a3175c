"""A policy of canned replies, for tests of other services. It needs no model, and starts at once.

The last message of the conversation picks a rule, the rule gives the replies, and a reply is drawn from them as from a
language model that knows nothing else: at each byte the continuations of the replies that fit so far, weighted by how
many there are. So temperature, seeds, log-probabilities and scores mean here what they mean everywhere.
"""

import asyncio
import math
import random
import re
from collections import Counter
from collections.abc import Sequence

from webagent_inference.backend import Ability, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.codec import ByteCodec
from webagent_inference.config import ScriptConfig
from webagent_inference.fixed_weights import FixedWeights

# The logarithm of "never", finite so that it can be carried and compared.
NEVER = -100.0


class ScriptedBackend(FixedWeights):
    """Rules, tried in their order."""

    abilities = frozenset(Ability) - {Ability.WEIGHTS}

    def __init__(self, config: ScriptConfig, codec: ByteCodec) -> None:
        super().__init__()
        self._rules = [(re.compile(rule.pattern, re.DOTALL), rule.replies) for rule in config.rules]
        self._otherwise = config.replies
        self._token_seconds = config.token_seconds
        self._codec = codec

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend."""
        replies, said = self._replies(prompt)
        dice = random.Random(sampling.seed)  # noqa: S311 - not a secret
        token_ids: list[int] = []
        logprobs: list[float] = []
        while len(token_ids) < sampling.max_tokens:
            try:
                await self._in_flight.run(asyncio.sleep(self._token_seconds))
            except Interrupted:
                return Sample(token_ids, logprobs, Finish.INTERRUPTED)
            chances = _tempered(_continuations(replies, [*said, *token_ids]), sampling)
            if sampling.temperature == 0:
                token = max(chances, key=lambda each: (chances[each], -each))
            else:
                token = dice.choices(list(chances), weights=list(chances.values()))[0]
            token_ids.append(token)
            logprobs.append(math.log(chances[token]))
            if sink is not None:
                sink([token], logprobs[-1:])
            if token in self._codec.end_tokens:
                return Sample(token_ids, logprobs, Finish.STOP)
        return Sample(token_ids, logprobs, Finish.LENGTH)

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend."""
        replies, said = self._replies(prompt)
        scores: list[float] = []
        for index, token in enumerate(token_ids):
            following = _continuations(replies, [*said, *token_ids[:index]])
            share = following[token] / following.total()
            scores.append(math.log(share) if share else NEVER)
        return scores

    async def close(self) -> None:
        """See Backend."""

    def _replies(self, prompt: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """The replies to this prompt as tokens, and how far the assistant has got."""
        messages, said = self._codec.conversation(prompt)
        content = messages[-1].content if messages else ""
        for pattern, replies in self._rules:
            if isinstance(content, str) and pattern.search(content):
                return [self._codec.reply(reply) for reply in replies], said
        return [self._codec.reply(reply) for reply in self._otherwise], said


def _continuations(replies: Sequence[list[int]], said: Sequence[int]) -> Counter[int]:
    """How many of the replies go on with each token; what fits none of them ends."""
    so_far = list(said)
    at = len(so_far)
    following = Counter(reply[at] for reply in replies if len(reply) > at and reply[:at] == so_far)
    return following or Counter({replies[0][-1]: 1})


def _tempered(following: Counter[int], sampling: Sampling) -> dict[int, float]:
    """The distribution that is drawn from; at temperature 0 the policy's own."""
    exponent = 1 / sampling.temperature if sampling.temperature else 1.0
    most = max(following.values())
    weights = {token: (count / most) ** exponent for token, count in sorted(following.items())}
    if sampling.temperature and sampling.top_p < 1:
        kept, mass = {}, 0.0
        for token in sorted(weights, key=lambda each: (-weights[each], each)):
            kept[token] = weights[token]
            mass += weights[token] / sum(weights.values())
            if mass >= sampling.top_p:
                break
        weights = kept
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}
