"""The versions whose weights led to those in training, oldest first: what staleness is measured in.

A resumed trainer republishes restored weights under a new number, so several numbers may stand for one step; numbers
of a line that a crash cut off belong to no step and are infinitely stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


class Lineage:
    """Steps, each with the version numbers of its weights."""

    def __init__(self, steps: Sequence[Sequence[int]] = ((0,),)) -> None:
        self._steps = [list(numbers) for numbers in steps]

    @property
    def version(self) -> int:
        """The number under which the newest weights were published last."""
        return self._steps[-1][-1]

    @property
    def parent(self) -> int:
        """The version before, 0 if there is none."""
        return self._steps[-2][-1] if len(self._steps) > 1 else 0

    def advance(self, version: int) -> None:
        """New weights were published."""
        self._steps.append([version])

    def rename(self, version: int) -> None:
        """The newest weights were published again."""
        self._steps[-1].append(version)

    def staleness(self, version: int) -> float:
        """Steps between a version's weights and the newest."""
        for age, numbers in enumerate(reversed(self._steps)):
            if version in numbers:
                return age
        return math.inf

    def state(self) -> list[list[int]]:
        """What the constructor takes, as JSON values."""
        return [list(numbers) for numbers in self._steps]
