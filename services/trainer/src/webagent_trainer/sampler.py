"""Which task and seed a group plays.

Tasks are drawn by the running variance of their groups' rewards, because that is what a group teaches by: a task that
always succeeds or always fails has none, nor has one that succeeds with some seeds and fails with others, each time
alike. A floor keeps every task in play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webagent_trainer.chance import seeded
from webagent_trainer.config import SeedRange, TaskSamplerConfig

_UNKNOWN_SUCCESS, _UNKNOWN_VARIANCE = 0.5, 0.25


class TaskSampler:
    """A seeded source of tasks; what it has learned of them travels in the checkpoint."""

    def __init__(self, tasks: Sequence[str], seeds: SeedRange, config: TaskSamplerConfig, *, seed: int) -> None:
        self._tasks = tuple(tasks)
        self._seeds = seeds
        self._config = config
        self._seed = seed
        self._success = dict.fromkeys(self._tasks, _UNKNOWN_SUCCESS)
        self._variance = dict.fromkeys(self._tasks, _UNKNOWN_VARIANCE)

    @property
    def success(self) -> Mapping[str, float]:
        """The running success of each task."""
        return self._success

    def draw(self, groups: int, *, before: int) -> list[tuple[str, int]]:
        """A task and a seed for each of `groups` groups; the counts of tasks follow their weights within one.

        `before`: groups that the run has drawn so far. Each number has draws of its own, however often a run resumes.
        """
        chance = seeded("tasks", self._seed, before)
        weights = [max(variance, self._config.floor) for variance in self._variance.values()]
        step = sum(weights) / groups
        mark = chance.random() * step
        drawn: list[str] = []
        reached = 0.0
        for task, weight in zip(self._tasks, weights, strict=True):
            reached += weight
            while mark < reached and len(drawn) < groups:
                drawn.append(task)
                mark += step
        # Rounding may leave the last mark just past the end.
        drawn.extend(self._tasks[-1:] * (groups - len(drawn)))
        chance.shuffle(drawn)
        return [(task, chance.randrange(self._seeds.first, self._seeds.end)) for task in drawn]

    def learn(self, task: str, success: float) -> None:
        """Takes a group's mean reward, from 0 to 1, into its task's running success and variance.

        Groups may outlive their task's place in the configuration: then there is nothing to learn for.
        """
        if task not in self._success:
            return
        memory = self._config.memory
        success = min(max(success, 0.0), 1.0)
        self._success[task] = memory * self._success[task] + (1.0 - memory) * success
        self._variance[task] = memory * self._variance[task] + (1.0 - memory) * success * (1.0 - success)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON values."""
        return {"success": dict(self._success), "variance": dict(self._variance)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken; tasks that are new since then start unknown."""
        success, variance = state["success"], state["variance"]
        self._success = {task: float(success.get(task, _UNKNOWN_SUCCESS)) for task in self._tasks}
        self._variance = {task: float(variance.get(task, _UNKNOWN_VARIANCE)) for task in self._tasks}
