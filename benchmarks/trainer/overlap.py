"""Throughput of the asynchronous loop against the synchronous one: real queue and trainer loop, simulated durations.

    python benchmarks/trainer/overlap.py [--iterations 12] [--staleness 1 2 4] [--output FILE.json]

Turns are log-normal (median 5, 99th percentile 40), 1 s each, in 64 slots; a step takes half of the mean rollout. What
"the mean rollout" means is measured both ways: of an iteration's 64 episodes together, and of a single episode.
Useful episodes per simulated second count neither stale nor surplus ones. Wall seconds per episode are what the loop
itself costs: queue, archive, ledger and scheduling.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from webagent_runtime.testing import nats_server
from webagent_trainer.chance import seeded
from webagent_trainer.simulation import Workload, simulate

_SAMPLES = 20_000


def mean_episode_seconds(work: Workload) -> float:
    """The mean length of one episode."""
    chance = seeded("mean episode")
    return sum(work.turns(chance) for _ in range(_SAMPLES)) / _SAMPLES * work.turn_seconds


async def measure(url: str, directory: Path, work: Workload) -> dict[str, float]:
    """One simulated run."""
    found = await simulate(work, url=url, directory=directory)
    counts = found.counts
    return {
        "useful_episodes_per_second": round(found.useful_per_second, 4),
        "simulated_seconds": round(found.seconds, 1),
        "trained": counts["trained"],
        "no_variance": counts["no_variance"],
        "stale": counts["stale"],
        "surplus": counts["surplus"],
        "wall_seconds_per_episode": round(found.wall_seconds / counts["dispatched"], 4),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--staleness", type=int, nargs="+", default=[2])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    plain = Workload(max_staleness=0)
    steps = {"iteration": plain.mean_rollout_seconds() / 2, "episode": mean_episode_seconds(plain) / 2}
    results: dict[str, dict[str, object]] = {}
    with nats_server() as nats, tempfile.TemporaryDirectory() as scratch:
        for of, step in steps.items():
            table: dict[str, object] = {"train_seconds": round(step, 2)}
            base = 0.0
            for staleness in (0, *options.staleness):
                work = Workload(max_staleness=staleness, iterations=options.iterations, train_seconds=step)
                directory = Path(scratch) / f"{of}-{staleness}"
                row = asyncio.run(measure(nats.url, directory, work))
                base = base or row["useful_episodes_per_second"]
                row["times"] = round(row["useful_episodes_per_second"] / base, 2)
                table[f"max_staleness={staleness}"] = row
                print(f"step half of an {of}'s rollout, max_staleness {staleness}: {row}", flush=True)
            results[of] = table
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
