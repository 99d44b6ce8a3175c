"""Groups that are being played: episodes of one task and seed, complete when each has an outcome.

Outcomes come from the event loop, whole groups are taken by the training thread; both hold the run's bell.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from webagent.trajectory.v1 import trajectory_pb2


@dataclass(slots=True)
class Group:
    """One group and what has come of it so far."""

    group_id: str
    task: str
    seed: int
    iteration: int
    deadline: float
    open: set[str]
    scored: dict[str, trajectory_pb2.Trajectory] = field(default_factory=dict)
    lost: int = 0
    # Scored ones that do not come from this run's policy.
    refused: int = 0
    # Whether an earlier process of the run dispatched it.
    taken_up: bool = False

    @property
    def complete(self) -> bool:
        """Whether every episode has an outcome."""
        return not self.open


class Assembly:
    """The groups in play, oldest first, and the newest outcomes."""

    def __init__(self, bell: threading.Condition, *, window: int) -> None:
        self._bell = bell
        self._groups: dict[str, Group] = {}
        self._by_episode: dict[str, Group] = {}
        self._newest: deque[str] = deque(maxlen=window)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def episodes_open(self) -> int:
        """Episodes without an outcome."""
        return len(self._by_episode)

    def add(self, group: Group) -> None:
        """Expects a group's outcomes from now on."""
        with self._bell:
            self._groups[group.group_id] = group
            self._by_episode.update(dict.fromkeys(group.open, group))

    def settle(self, episode_id: str, outcome: str, trajectory: trajectory_pb2.Trajectory | None) -> None:
        """Takes the final outcome of an open episode, once; SCORED ones bring their trajectory."""
        with self._bell:
            group = self._by_episode.pop(episode_id, None)
            if group is None:
                return
            self._newest.append(outcome)
            group.open.discard(episode_id)
            if trajectory is not None:
                group.scored[episode_id] = trajectory
            else:
                group.lost += 1
            self._bell.notify_all()

    def invalid_share(self) -> float:
        """INVALID among the newest outcomes, as a share of the whole window."""
        with self._bell:
            return self._newest.count("INVALID") / (self._newest.maxlen or 1)

    def overdue(self, now: float) -> list[Group]:
        """Groups with open episodes whose deadline is past."""
        with self._bell:
            return [group for group in self._groups.values() if group.open and group.deadline <= now]

    def next_deadline(self) -> float | None:
        """The earliest deadline of an open episode."""
        with self._bell:
            return min((group.deadline for group in self._by_episode.values()), default=None)

    def take(self, count: int) -> list[Group]:
        """Removes and returns up to `count` complete groups, oldest first."""
        with self._bell:
            chosen = [group for group in self._groups.values() if group.complete][:count]
            for group in chosen:
                del self._groups[group.group_id]
            return chosen

    def complete(self) -> int:
        """Number of complete groups."""
        with self._bell:
            return sum(group.complete for group in self._groups.values())

    def wait(self, timeout: float) -> bool:
        """Returns at the next news, or after `timeout` seconds; whether there was any."""
        with self._bell:
            return self._bell.wait(timeout)
