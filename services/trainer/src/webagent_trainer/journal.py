"""Where a run's numbers go: a line of metrics.jsonl, TensorBoard scalars, and Prometheus gauges."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import Gauge

from webagent_trainer.tensorboard import EventFile

TRAINING = Gauge("webagent_training", "The newest value of a number of the run's metrics.jsonl.", ["phase", "metric"])


class Journal:
    """The numbers of one run, step by step."""

    def __init__(self, directory: Path) -> None:
        self._lines = directory / "metrics.jsonl"
        self._scalars = directory / "tensorboard"
        self._events: EventFile | None = None

    def write(self, metrics: Mapping[str, float], *, phase: str, iteration: int, version: int) -> None:
        """Writes the numbers of one iteration to all three."""
        line = {"time": time.time(), "phase": phase, "iteration": iteration, "version": version, **metrics}
        with self._lines.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self._events is None:
            self._events = EventFile(self._scalars)
        self._events.write({f"{phase}/{name}": value for name, value in metrics.items()}, step=iteration)
        for name, value in metrics.items():
            TRAINING.labels(phase, name).set(value)
