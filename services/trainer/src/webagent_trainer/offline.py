"""Learning from stored trajectories: the same methods, and nothing is asked of rollout.

Each iteration takes the next groups of a seeded order over the file's groups; a file that is used up is begun again in
another order. Whoever sampled the episodes, their versions are none of this run's: every token counts as stale, so its
importance weight is min(pi / pi_sampler, cap). Versions are published at checkpoints and at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited

from webagent_trainer.chance import seeded
from webagent_trainer.config import RlConfig
from webagent_trainer.errors import RunFailedError
from webagent_trainer.lineage import Lineage
from webagent_trainer.methods import Method
from webagent_trainer.rows import Episode, Provenance, RefusedError, identity_of, sampled_episode
from webagent_trainer.run import Run
from webagent_trainer.stages import Stages
from webagent_trainer.update import LiveGroup

log = structlog.get_logger()

PHASE = "rl"
_ANY_VERSION = 2**63


class Offline:
    """The phase on stored trajectories."""

    def __init__(self, run: Run, config: RlConfig, method: Method, stored: Path) -> None:
        self._run = run
        self._config = config
        self._method = method
        self._groups = read_groups(stored, config, vocabulary=run.vocabulary)
        self._iteration = 0

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint's state, empty at the beginning."""
        self._iteration = state.get("iteration", 0)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON values."""
        return {"iteration": self._iteration}

    def run(self) -> None:
        """All iterations that are left."""
        self._run.begin(PHASE, iterations=self._config.iterations, done=self._iteration)
        while self._iteration < self._config.iterations:
            self._run.stop_point(PHASE, self.state)
            self._iterate()

    def _iterate(self) -> None:
        stages = Stages()
        taken = [self._groups[place] for place in self._places()]
        live = [group for group in taken if self._method.takes([episode.reward for episode in group.episodes])]
        chance = seeded("minibatches", self._run.config.seed, self._iteration)
        iteration = self._iteration
        self._iteration += 1
        rewards = [episode.reward for group in taken for episode in group.episodes]
        metrics = {"reward_mean": sum(rewards) / len(rewards), "groups": len(taken), "groups_live": len(live)}
        if live:
            # A lineage that knows no version.
            metrics |= self._method.update(live, Lineage([[]]), chance, stages, iteration=iteration)
        last = self._iteration == self._config.iterations
        if last or self._iteration % self._run.checkpoint_every == 0:
            with stages.measure("publish"):
                self._run.publish(PHASE, [group.episodes[0].rows[0].context for group in taken], last=last)
            self._run.checkpoint(PHASE, self.state())
        self._run.note(metrics | stages.metrics(), iteration=self._iteration)

    def _places(self) -> list[int]:
        """Where this iteration's groups stand in the file; each pass over it has an order of its own."""
        found: list[int] = []
        for number in range(self._iteration * self._config.groups, (self._iteration + 1) * self._config.groups):
            passes, place = divmod(number, len(self._groups))
            order = seeded("stored", self._run.config.seed, passes).sample(range(len(self._groups)), len(self._groups))
            found.append(order[place])
        return found


def read_groups(path: Path, config: RlConfig, *, vocabulary: int) -> list[LiveGroup]:
    """The SCORED episodes of a file whose provenance holds, by group; an episode of no group is one by itself.

    Of an episode that the file holds several times, as an archive may, the first counts.
    """
    if not path.is_file():
        raise RunFailedError("NO_TRAJECTORIES", f"{path} does not exist")
    by_group: dict[str, list[Episode]] = {}
    tasks: dict[str, str] = {}
    refused: Counter[str] = Counter()
    identity = None
    seen: set[tuple[str, str]] = set()
    for trajectory in delimited.read(path, trajectory_pb2.Trajectory):
        episode_id = trajectory.episode.episode_id
        if episode_id and (trajectory.run_id, episode_id) in seen:
            continue
        seen.add((trajectory.run_id, episode_id))
        if trajectory.status != trajectory_pb2.EPISODE_STATUS_SCORED or not trajectory.turns:
            continue
        identity = identity or identity_of(trajectory)
        assert identity is not None
        try:
            episode = sampled_episode(trajectory, Provenance(identity, config.sampling, vocabulary, _ANY_VERSION))
        except RefusedError as error:
            refused[error.reason] += 1
            continue
        key = trajectory.group_id or episode_id
        by_group.setdefault(key, []).append(episode)
        tasks[key] = trajectory.episode.task.task_id
    log.info("stored_trajectories", groups=len(by_group), refused=dict(refused))
    if not by_group:
        raise RunFailedError("NO_TRAJECTORIES", f"{path} holds no scored episode to learn from: {_reasons(refused)}")
    return [LiveGroup(tasks[key], tuple(episodes)) for key, episodes in by_group.items()]


def _reasons(refused: Mapping[str, int]) -> str:
    said: Sequence[str] = [f"{count} {reason}" for reason, count in refused.items()]
    return ", ".join(said) or "none was scored"
