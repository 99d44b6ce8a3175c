"""The trainer's numbers, iteration by iteration, as it writes them to metrics.jsonl.

Each line holds `time`, `phase`, `iteration`, `version` and the numbers of that moment. A resumed run writes the
iterations after its checkpoint again: the later line counts.
"""

import json
import math

from pydantic import BaseModel

from webagent_cli.runs import Run

NOT_NUMBERS = {"time", "phase", "iteration", "version"}


class Iteration(BaseModel):
    """One optimizer step of cloning, or one iteration of RL. `at`: seconds since the epoch."""

    phase: str
    iteration: int
    at: float
    metrics: dict[str, float] = {}


def read_iterations(run: Run) -> list[Iteration]:
    """All iterations so far, in order; numbers that are not finite are left out."""
    if not run.metrics.is_file():
        return []
    found: dict[tuple[str, int], Iteration] = {}
    for line in run.metrics.read_text().splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            # The trainer was killed while it wrote this line.
            continue
        key = (values["phase"], values["iteration"])
        numbers = {name: value for name, value in values.items() if name not in NOT_NUMBERS and math.isfinite(value)}
        known = found.get(key)
        merged = (known.metrics if known else {}) | numbers
        found[key] = Iteration(phase=key[0], iteration=key[1], at=values["time"], metrics=merged)
    return [found[key] for key in sorted(found)]
