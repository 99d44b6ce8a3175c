"""Seconds that each stage of an iteration took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """A stopwatch with named laps; laps of one name add up."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the block's duration to `name`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - began

    def metrics(self) -> dict[str, float]:
        """Every lap as `seconds_<name>`, and the whole as `seconds`."""
        laps = {f"seconds_{name}": value for name, value in self.seconds.items()}
        return laps | {"seconds": time.monotonic() - self._began}
