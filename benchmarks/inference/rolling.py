"""Two replicas under load while both take one version after the other.

    python benchmarks/inference/rolling.py [--model DIR] [--updates 6] [--episodes 8] [--out FILE]

Aim: no failed request, and no reply of two versions that does not say so. Episodes keep to their replica. On a small
machine both replicas compute with transformers, since two engines of vLLM would not leave each other enough memory.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from parts import Served, canary, publish, run, serving, tokens

REPLY_TOKENS = 24


async def episode(served: Served, number: int, over: asyncio.Event) -> dict[str, list[float]]:
    """Turns until told to stop."""
    seen: dict[str, list[float]] = {"seconds": [], "failed": [], "mixed": [], "unsaid": []}
    turn = 0
    while not over.is_set():
        began = time.monotonic()
        try:
            prompt = tokens(200 + 40 * (turn % 5), number)
            reply = await served.generate(f"{number}-{turn}", prompt, max_tokens=REPLY_TOKENS)
        except Exception as error:  # noqa: BLE001 - failures are what is counted
            print(f"failed: {error}")
            seen["failed"].append(1.0)
            continue
        seen["seconds"].append(time.monotonic() - began)
        seen["mixed"].append(float(len(reply.spans) > 1))
        covered = sum(span.end - span.start for span in reply.spans)
        seen["unsaid"].append(float(covered != len(reply.token_ids)))
        turn += 1
    return seen


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Rolls each version over the replicas, one after the other."""
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        async with (
            serving(arguments.model, backend="transformers") as first,
            serving(arguments.model, backend="transformers") as second,
        ):
            replicas = [first, second]
            proof = await canary(first)
            over = asyncio.Event()
            episodes = [
                asyncio.create_task(episode(replicas[number % 2], number, over)) for number in range(arguments.episodes)
            ]
            updates: list[float] = []
            for number in range(1, arguments.updates + 1):
                version = publish(Path(name) / str(number), number, arguments.model, proof)
                for served in replicas:
                    updater = served.replica.core.updater
                    updates.append(await updater.apply(version.version, version.uri, version.manifest_digest))
            over.set()
            seen = await asyncio.gather(*episodes)
    return {
        "requests": sum(len(each["seconds"]) for each in seen),
        "failed": sum(len(each["failed"]) for each in seen),
        "of_two_versions": int(sum(sum(each["mixed"]) for each in seen)),
        "with_untold_tokens": int(sum(sum(each["unsaid"]) for each in seen)),
        "turn_seconds_median": round(statistics.median(value for each in seen for value in each["seconds"]), 3),
        "update_seconds_median": round(statistics.median(updates), 3),
    }


if __name__ == "__main__":
    run(__doc__, measure, updates=6, episodes=8)
