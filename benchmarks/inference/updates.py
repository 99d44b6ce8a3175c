"""From the trainer's publish to the first token of the new version, stage by stage; and whether it is the right one.

    python benchmarks/inference/updates.py [--model DIR] [--updates 5] [--out FILE]

The clock starts when a version's files and manifest are on disk and stops when a request that asks for that version has
its first token. Requests are in flight all the while. Then the answers of the updated engine are held against those of
a fresh one started on the same weights, one request at a time: greedy tokens must be equal, log-probabilities within
the tolerance; also for a prompt that was cached before the update. Aim: under 1 s for the 135M model.
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
from webagent_inference import modeldir

TOLERANCE = 0.0
PROBES = 6
PROBE_TOKENS = 24


async def background(served: Served, over: asyncio.Event, number: int) -> list[int]:
    """Requests one after the other until told to stop; the number of spans of each reply."""
    spans: list[int] = []
    while not over.is_set():
        reply = await served.generate(f"load-{number}", tokens(300, number + 10), max_tokens=48)
        spans.append(len(reply.spans))
    return spans


async def probe(served: Served) -> list[tuple[list[int], list[float]]]:
    """Greedy replies, one at a time."""
    answers = []
    for number in range(PROBES):
        reply = await served.generate(f"probe-{number}", tokens(200, number), temperature=0, max_tokens=PROBE_TOKENS)
        answers.append((list(reply.token_ids), list(reply.logprobs)))
    return answers


def changed(model: Path, directory: Path, scale: float) -> Path:
    """The model with its matrices made a little larger, so that every answer changes."""
    import safetensors.torch  # noqa: PLC0415 - after the environment is set

    directory.mkdir()
    for name in modeldir.weight_files(model):
        weights = safetensors.torch.load_file(model / name)
        grown = {key: value * scale if value.dim() == 2 else value for key, value in weights.items()}
        safetensors.torch.save_file(grown, directory / name)
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            (directory / path.name).write_bytes(path.read_bytes())
    return directory


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Updates under load, then the comparison with a fresh engine."""
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        root = Path(name)
        weights = [changed(arguments.model, root / f"weights-{number}", 1 + 0.02 * number) for number in (1, 2)]
        fresh, proofs = [], []
        for directory in weights:
            async with serving(directory) as served:
                fresh.append(await probe(served))
                proofs.append(await canary(served))
        async with serving(arguments.model) as served:
            await probe(served)
            result = await update(served, root, weights, proofs, arguments.updates)
            last = (arguments.updates - 1) % 2
            answers = await probe(served)
    gaps = [
        abs(ours - theirs)
        for (_, left), (_, right) in zip(answers, fresh[last], strict=True)
        for ours, theirs in zip(left, right, strict=False)
    ]
    return result | {
        "fresh_engine": {
            "greedy_equal": [left[0] == right[0] for left, right in zip(answers, fresh[last], strict=True)],
            "logprob_worst_difference": max(gaps),
            "tolerance": TOLERANCE,
        }
    }


async def update(served: Served, root: Path, weights: list[Path], proofs: list[Any], updates: int) -> dict[str, Any]:
    """The updates, with requests in flight."""
    over = asyncio.Event()
    load = [asyncio.create_task(background(served, over, number)) for number in range(4)]
    updater = served.replica.core.updater
    seconds: list[float] = []
    stages: list[dict[str, float]] = []
    for number in range(1, updates + 1):
        version = publish(root / str(number), number, weights[(number - 1) % 2], proofs[(number - 1) % 2])
        began = time.monotonic()
        await updater.apply(version.version, version.uri, version.manifest_digest)
        await served.generate("first", tokens(100, 3), max_tokens=1, min_weights_version=number)
        seconds.append(time.monotonic() - began)
        stages.append({**updater.seconds, "first_token": seconds[-1] - sum(updater.seconds.values())})
    over.set()
    spans = [count for task in await asyncio.gather(*load) for count in task]
    return {
        "published_to_first_token_seconds": round(statistics.median(seconds), 3),
        "rounds": [round(value, 3) for value in seconds],
        "stages": {name: round(statistics.median(each[name] for each in stages), 3) for name in stages[0]},
        "replies_under_load": len(spans),
        "replies_of_two_versions": sum(count > 1 for count in spans),
    }


if __name__ == "__main__":
    run(__doc__, measure, updates=5)
