"""What the service costs over the engine it runs, for the requests that agents make.

    python benchmarks/inference/agents.py [--model DIR] [--rounds 3] [--turns 6] [--out FILE]

One engine, two ways to the same requests in turn: bare `AsyncLLM.generate` and the service's Generate over gRPC. An
episode is a conversation: each turn's prompt is the last one, its reply, and a new page; all episodes share the system
prompt. 1, 8 and 32 episodes run at the same time. Aims: at least 0.97 of the bare engine's tokens per second, and less
than 2 ms more at the median of a turn. Each round's prompts are new to the prefix cache.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from parts import SECONDS, Served, run, serving, tokens
from webagent_inference.backend import Sampling

EPISODES = (1, 8, 32)
SYSTEM_TOKENS = 256
PAGE_TOKENS = 180
REPLY_TOKENS = 32

Way = Callable[[str, list[int], int], Awaitable[list[int]]]


async def play(way: Way, episodes: int, turns: int, salt: int) -> tuple[float, list[float]]:
    """Tokens per second of all episodes at once, and the seconds of each turn."""
    seconds: list[float] = []
    sampled = 0

    async def episode(number: int) -> None:
        nonlocal sampled
        prompt = tokens(SYSTEM_TOKENS, salt)
        for turn in range(turns):
            prompt = prompt + tokens(PAGE_TOKENS, salt + 1000 * number + turn + 1)
            began = time.monotonic()
            reply = await way(f"{salt}-{number}-{turn}", prompt, number * 100 + turn)
            seconds.append(time.monotonic() - began)
            sampled += len(reply)
            prompt = prompt + reply

    began = time.monotonic()
    await asyncio.gather(*(episode(number) for number in range(episodes)))
    return sampled / (time.monotonic() - began), seconds


async def compare(served: Served, episodes: int, rounds: int, turns: int) -> dict[str, Any]:
    """Both ways in turn, so that they see the same machine."""
    from vllm.inputs import tokens_input  # noqa: PLC0415 - after the environment is set

    backend: Any = served.replica.core.policy.backend

    async def bare(name: str, prompt: list[int], seed: int) -> list[int]:
        parameters = backend.parameters(Sampling(temperature=1.0, max_tokens=REPLY_TOKENS, seed=seed))
        output: Any = None
        async for each in backend.engine.generate(tokens_input(prompt), parameters, name):
            output = each
        return list(output.outputs[0].token_ids)

    async def service(name: str, prompt: list[int], seed: int) -> list[int]:
        return list((await served.generate(name, prompt, max_tokens=REPLY_TOKENS, seed=seed)).token_ids)

    ways: dict[str, Way] = {"bare": bare, "service": service}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    turns_of: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in ways if number % 2 == 0 else reversed(list(ways)):
            # The same requests both ways, but with an empty cache each.
            await asyncio.wait_for(backend.reset_cache(), SECONDS)
            rate, seconds = await play(ways[name], episodes, turns, salt=episodes)
            rates[name].append(rate)
            turns_of[name] += seconds
    rate_of = {name: statistics.median(values) for name, values in rates.items()}
    median = {name: statistics.median(values) for name, values in turns_of.items()}
    return {
        "tokens_per_second": {name: round(value, 1) for name, value in rate_of.items()},
        "service_over_bare": round(rate_of["service"] / rate_of["bare"], 3),
        "turn_ms_median": {name: round(1000 * value, 2) for name, value in median.items()},
        "added_ms_median": round(1000 * (median["service"] - median["bare"]), 2),
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All numbers of episodes on one engine."""
    async with serving(arguments.model) as served:
        await compare(served, 1, 1, 2)
        return {
            f"{episodes} episodes": await compare(served, episodes, arguments.rounds, arguments.turns)
            for episodes in EPISODES
        }


if __name__ == "__main__":
    run(__doc__, measure, rounds=3, turns=6)
