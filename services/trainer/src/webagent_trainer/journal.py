"""Where a run's numbers go: a line of metrics.jsonl, TensorBoard scalars, and Prometheus gauges."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import Gauge
from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

TRAINING = Gauge("webagent_training", "The newest value of a number of the run's metrics.jsonl.", ["phase", "metric"])


class Journal:
    """The numbers of one run, step by step; what `write` was given is on its way to the disk when it returns."""

    def __init__(self, directory: Path) -> None:
        self._lines = directory / "metrics.jsonl"
        self._scalars = directory / "tensorboard"
        self._events: EventsWriter | None = None

    def write(self, metrics: Mapping[str, float], *, phase: str, iteration: int, version: int) -> None:
        """Writes the numbers of one iteration to all three."""
        line = {"time": time.time(), "phase": phase, "iteration": iteration, "version": version, **metrics}
        with self._lines.open("a") as file:
            file.write(json.dumps(line) + "\n")
        scalars = [Summary.Value(tag=f"{phase}/{k}", simple_value=v) for k, v in metrics.items() if math.isfinite(v)]
        if self._events is None:
            # A process that resumes a run writes a file of its own.
            self._scalars.mkdir(parents=True, exist_ok=True)
            self._events = EventsWriter(str(self._scalars / "events"), f".{os.getpid()}")
        self._events.write_event(Event(wall_time=time.time(), step=iteration, summary=Summary(value=scalars)))
        self._events.flush()
        for name, value in metrics.items():
            TRAINING.labels(phase, name).set(value)
