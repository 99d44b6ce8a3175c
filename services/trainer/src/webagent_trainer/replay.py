"""The newest successful episodes, kept for learning from again."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from webagent_trainer.rows import Episode, Row


class Replay:
    """At most `size` episodes, oldest out first."""

    def __init__(self, size: int) -> None:
        self._kept: deque[Episode] = deque(maxlen=size)

    def episodes(self) -> list[Episode]:
        """What is kept, oldest first."""
        return list(self._kept)

    def add(self, episodes: Sequence[Episode]) -> None:
        """Keeps the successful ones of them."""
        self._kept.extend(episode for episode in episodes if episode.reward > 0)

    def save(self, path: Path) -> None:
        """Writes all of it."""
        path.write_text(json.dumps([asdict(episode) for episode in self._kept]))

    def restore(self, path: Path) -> None:
        """Reads what `save` wrote."""
        self._kept.clear()
        self._kept.extend(_episode(values) for values in json.loads(path.read_text()))


def _episode(values: dict[str, Any]) -> Episode:
    rows = tuple(
        Row(*(tuple(row[name]) for name in ("context", "reply", "logprobs", "versions"))) for row in values["rows"]
    )
    return Episode(values["episode_id"], values["reward"], rows, tuple(values["turn_lengths"]))
