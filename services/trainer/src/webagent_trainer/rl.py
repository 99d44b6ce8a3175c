"""Learning from episodes that the policy plays, one iteration after the other.

    draw tasks ─► ledger ─► requests ─► (rollout plays) ─► intake ─► complete groups
                                                                          │
      replicas serve it ◄─ bucket ◄─ version on disk ◄─ gradient steps ◄──┤ filter: provenance, staleness, variance
                                                                          ▼
                                                                   uses in the ledger

The training thread runs this file from top to bottom; outcomes arrive meanwhile through the event loop. It waits only
for groups (bounded by their deadlines) and for replicas to serve a version (bounded by `serve_seconds`). Requests are
dispatched at most `max_staleness` iterations ahead; with 0, rollout and training take turns.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import structlog
from webagent.inference.v1 import inference_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.metrics import INVALID_SHARE

from webagent_trainer.books import Books
from webagent_trainer.chance import seeded
from webagent_trainer.config import RlConfig
from webagent_trainer.errors import RunFailedError, RunStoppedError
from webagent_trainer.groups import Group
from webagent_trainer.insight import describe
from webagent_trainer.ledger import Entry
from webagent_trainer.methods import Method
from webagent_trainer.released import with_released_contexts
from webagent_trainer.rows import Episode, Provenance, RefusedError, identity_of, sampled_episode
from webagent_trainer.run import Run
from webagent_trainer.sampler import TaskSampler
from webagent_trainer.stages import Stages
from webagent_trainer.update import LiveGroup

log = structlog.get_logger()

PHASE = "rl"
_LONGEST_WAIT = 5.0


class Reinforcement:
    """The phase: what is in play, what has been learned of the tasks, and how far it is."""

    def __init__(self, run: Run, config: RlConfig, books: Books, method: Method) -> None:
        self._run = run
        self._method = method
        self._config = config
        self._ledger = books.ledger
        self._archive = books.archive
        self._assembly = books.assembly
        self._sampler = TaskSampler(config.tasks, config.seeds, config.task_sampler, seed=run.config.seed)
        self._identity: inference_pb2.ModelIdentity | None = None
        self._iteration = 0

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint's state, empty at the beginning; the ledger forgets the uses that came after."""
        if not state:
            self._ledger.rewind(0)
            return
        self._iteration = state["iteration"]
        self._sampler.restore(state["sampler"])
        if state["identity"]:
            self._identity = inference_pb2.ModelIdentity(**state["identity"])
        self._ledger.rewind(state["ledger_position"])

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON values."""
        identity = self._identity
        names = ("model_id", "tokenizer_hash", "template_hash")
        return {
            "iteration": self._iteration,
            "sampler": self._sampler.state(),
            "identity": {name: getattr(identity, name) for name in names} if identity else None,
            "ledger_position": self._ledger.position(),
        }

    def run(self) -> None:
        """All iterations that are left."""
        self._run.begin(PHASE, iterations=self._config.iterations, done=self._iteration)
        if self._iteration < self._config.iterations:
            self._take_up_unfinished()
        while self._iteration < self._config.iterations:
            self._run.stop_point(PHASE, self.state)
            self._iterate()
            if self._iteration % self._run.checkpoint_every == 0:
                self._run.checkpoint(PHASE, self.state())
        self._finish()

    def _iterate(self) -> None:
        stages = Stages()
        with stages.measure("rollout"):
            self._dispatch_missing(self._config.groups)
            groups, live = self._collect()
        metrics = self._describe(groups, live, stages.seconds["rollout"])
        chance = seeded("minibatches", self._run.config.seed, self._iteration)
        iteration = self._iteration
        self._iteration += 1
        if live:
            metrics |= self._method.update(live, self._run.lineage, chance, stages, iteration=iteration)
            self._check_ratio(metrics.get("ratio_mean", 1.0))
            self._ledger.use([episode.episode_id for group in live for episode in group.episodes], "TRAINED")
            try:
                self._publish(live, stages)
            except RunStoppedError:
                # While replicas take the version over: the iteration is done.
                self._run.note(metrics | stages.metrics(), iteration=self._iteration)
                self._run.checkpoint(PHASE, self.state())
                raise
        else:
            log.warning("nothing_to_learn", iteration=self._iteration, groups=len(groups))
        self._run.note(metrics | stages.metrics(), iteration=self._iteration)

    def _check_ratio(self, ratio: float) -> None:
        """At equal weights, sampler and trainer must give the same tokens the same probability."""
        tolerance = self._config.ratio_tolerance
        # Under official_release they see different contexts.
        if tolerance is None or self._config.official_release or not abs(ratio - 1.0) > tolerance:
            return
        detail = f"at equal weights the trainer gives sampled tokens {ratio:.3g} times the sampler's probability"
        advice = "see that inference serves what this run published, in a precision near the trainer's"
        raise RunFailedError("RATIO_OFF", f"{detail}, further from 1 than ratio_tolerance {tolerance:g}; {advice}")

    def _publish(self, live: Sequence[LiveGroup], stages: Stages) -> None:
        prompts = [group.episodes[0].rows[0].context for group in live]
        last = self._iteration == self._config.iterations
        with stages.measure("publish"):
            self._run.publish(PHASE, prompts, last=last)
        if self._config.max_staleness == 0 or last:
            with stages.measure("serve"):
                self._run.wait_served(self._config.serve_seconds, required=True)

    def _dispatch_missing(self, left: int) -> None:
        """Keeps requests out for the groups that are `left` of this iteration and for as many iterations after it as
        may be stale.
        """
        ahead = min(self._config.max_staleness, self._config.iterations - self._iteration - 1)
        self._dispatch(left + ahead * self._config.groups - len(self._assembly))

    def _dispatch(self, groups: int) -> None:
        if groups <= 0:
            return
        deadline = time.time() + self._config.deadline_seconds
        tasks = self._sampler.draw(groups, before=self._ledger.groups())
        drawn = [self._new_group(task, seed, deadline) for task, seed in tasks]
        minimum = self._run.lineage.version
        self._ledger.enter(
            Entry(
                episode_id=episode_id,
                group_id=group.group_id,
                iteration=group.iteration,
                suite=self._config.suite,
                task_id=group.task,
                seed=group.seed,
                min_version=minimum,
                deadline=group.deadline,
            )
            for group in drawn
            for episode_id in sorted(group.open)
        )
        for group in drawn:
            self._assembly.add(group)
        for group in drawn:
            self._ask(group, minimum)

    def _ask(self, group: Group, minimum: int) -> None:
        # A copy: outcomes may arrive meanwhile.
        episodes = sorted(group.open.copy())
        self._run.exchange.dispatch([self._request(group, episode_id, minimum) for episode_id in episodes])

    def _new_group(self, task: str, seed: int, deadline: float) -> Group:
        group_id = uuid.uuid4().hex
        episodes = {f"{self._run.run_id}-{group_id}-{index}" for index in range(self._config.group_size)}
        return Group(group_id, task, seed, self._iteration, deadline, episodes)

    def _request(self, group: Group, episode_id: str, minimum: int) -> trajectory_pb2.RolloutRequest:
        agent, sampling = self._config.agent, self._config.sampling
        request = trajectory_pb2.RolloutRequest(run_id=self._run.run_id, group_id=group.group_id)
        request.deadline.FromNanoseconds(round(group.deadline * 1e9))
        episode = request.episode
        episode.episode_id = episode_id
        episode.task.suite, episode.task.task_id = self._config.suite, group.task
        episode.seed = group.seed
        episode.agent.prompt = agent.prompt
        episode.agent.thinking = agent.thinking
        episode.agent.max_turns = agent.max_turns
        episode.agent.max_unusable_replies = agent.max_unusable_replies
        episode.agent.screenshots = agent.screenshots
        episode.agent.compress_context = agent.compress_context
        episode.agent.max_observation_bytes = agent.max_observation_bytes
        episode.agent.omit_attributes.extend(agent.omit_attributes)
        episode.sampled.sampling.temperature = sampling.temperature
        episode.sampled.sampling.max_tokens = sampling.max_tokens
        episode.sampled.sampling.top_p = 1.0
        episode.sampled.min_weights_version = minimum
        return request

    def _collect(self) -> tuple[list[Group], list[LiveGroup]]:
        """Complete groups, and those of them to learn from; groups without variance may be replaced."""
        groups: list[Group] = []
        live: list[LiveGroup] = []
        # A run that ends meanwhile takes this iteration's groups up again, and learns of each of them then.
        state = self.state()
        wanted = self._config.groups
        replacements = self._config.replacement_groups
        while len(groups) < wanted and len(self._assembly):
            self._wait_for_group(state)
            for group in self._assembly.take(wanted - len(groups)):
                episodes = self._admit(group)
                # Nothing of it outlived the trainer that asked for it: another is played in its place.
                if group.taken_up and not episodes:
                    continue
                groups.append(group)
                kept = self._live(group, episodes)
                if kept is not None:
                    live.append(kept)
                elif replacements:
                    replacements -= 1
                    wanted += 1
            self._dispatch_missing(wanted - len(groups))
        if all(group.refused == len(group.scored) for group in groups):
            raise self._nothing_to_read(groups)
        return groups, live

    def _wait_for_group(self, state: Mapping[str, Any]) -> None:
        while not self._assembly.complete():
            self._run.stop_point(PHASE, lambda: state)
            self._check_invalid()
            self._expire()
            deadline = self._assembly.next_deadline()
            left = _LONGEST_WAIT if deadline is None else deadline + self._config.grace_seconds - time.time()
            if not self._assembly.complete() and not self._assembly.wait(min(max(left, 0.01), _LONGEST_WAIT)):
                self._run.check_served()
        self._check_invalid()

    def _expire(self) -> None:
        """Enters EXPIRED for episodes whose deadline passed in silence."""
        for group in self._assembly.overdue(time.time() - self._config.grace_seconds):
            for episode_id in group.open.copy():
                self._ledger.settle(episode_id, "EXPIRED", reason="SILENT")
            self._settle_as_entered(group)

    def _settle_as_entered(self, group: Group) -> None:
        """Gives a group in play the outcomes that the ledger holds, whoever entered them and however early."""
        for entry in self._ledger.settled(group.group_id):
            if entry.episode_id not in group.open or entry.outcome is None:
                continue
            trajectory = None
            if entry.outcome == "SCORED" and entry.archive_offset is not None:
                trajectory = self._archive.read(entry.archive_offset)
            self._assembly.settle(entry.episode_id, entry.outcome, trajectory)

    def _check_invalid(self) -> None:
        bound = self._config.invalid
        share = self._assembly.invalid_share()
        INVALID_SHARE.set(share)
        if share > bound.share:
            detail = f"{share:.0%} of the newest {bound.window} episodes are INVALID, more than {bound.share:.0%}"
            raise RunFailedError("INVALID_SHARE", f"{detail}; `webagent ledger {self._run.run_id}` has the reasons")

    def _nothing_to_read(self, groups: Sequence[Group]) -> RunFailedError:
        iteration, reasons = self._iteration + 1, f"`webagent ledger {self._run.run_id}` has the reasons"
        if refused := sum(group.refused for group in groups):
            detail = f"all {refused} scored episodes of iteration {iteration} come from another policy than this run's"
            return RunFailedError("ALL_REFUSED", f"{detail}; let inference serve the run's model ({reasons})")
        detail = f"none of the {sum(group.lost for group in groups)} episodes of iteration {iteration} was scored"
        advice = f"see that rollout, env and inference are up ({reasons}) and resume the run"
        return RunFailedError("NOTHING_SCORED", f"{detail}; {advice}")

    def _admit(self, group: Group) -> list[Episode]:
        """The episodes of a complete group that may be learned from; enters the uses of all others."""
        episodes = []
        for episode_id, trajectory in group.scored.items():
            try:
                episode = self._read(trajectory)
            except RefusedError as refused:
                log.warning("episode_refused", episode=episode_id, reason=refused.reason, detail=str(refused))
                group.refused += 1
                self._ledger.use([episode_id], "REFUSED", reason=refused.reason)
                continue
            if self._run.lineage.staleness(episode.oldest_version) > self._config.max_staleness:
                self._ledger.use([episode_id], "STALE")
                continue
            episodes.append(episode)
        return episodes

    def _live(self, group: Group, episodes: Sequence[Episode]) -> LiveGroup | None:
        """The group if it teaches anything; else enters that it does not."""
        rewards = [episode.reward for episode in episodes]
        # Of a single one there is no telling how they vary.
        if len(rewards) > 1:
            self._sampler.learn(group.task, fmean(rewards))
        if self._method.takes(rewards):
            return LiveGroup(group.task, tuple(episodes))
        self._ledger.use([episode.episode_id for episode in episodes], "NO_VARIANCE")
        return None

    def _read(self, trajectory: trajectory_pb2.Trajectory) -> Episode:
        if self._identity is None:
            self._identity = identity_of(trajectory)
        if self._identity is None:
            raise RefusedError("NO_TOKENS", "the episode has no turn")
        provenance = Provenance(
            identity=self._identity,
            sampling=self._config.sampling,
            vocabulary=self._run.vocabulary,
            newest_version=self._run.newest_version,
        )
        episode = sampled_episode(trajectory, provenance)
        return with_released_contexts(episode) if self._config.official_release else episode

    def _take_up_unfinished(self) -> None:
        """Puts what an earlier process left, open or unused, back into play."""
        by_group: dict[str, list[Entry]] = {}
        for entry in self._ledger.unfinished():
            by_group.setdefault(entry.group_id, []).append(entry)
        for group_id, entries in by_group.items():
            first = entries[0]
            group = Group(
                group_id,
                first.task_id,
                first.seed,
                first.iteration,
                first.deadline,
                {entry.episode_id for entry in entries if entry.outcome is None},
                taken_up=True,
            )
            for entry in entries:
                if entry.archive_offset is not None:
                    group.scored[entry.episode_id] = self._archive.read(entry.archive_offset)
            self._assembly.add(group)
            # An outcome that came since the ledger was read found no group to go to.
            self._settle_as_entered(group)
            # Whether they were dispatched before the crash is not known; the queue drops what it holds already.
            if group.deadline > time.time():
                self._ask(group, self._run.lineage.version)
        if by_group:
            log.info("groups_taken_up", groups=len(by_group))

    def _describe(self, groups: Sequence[Group], live: Sequence[LiveGroup], seconds: float) -> dict[str, float]:
        tolerance = self._config.variance_tolerance
        metrics = describe(groups, live, self._run.lineage, seconds=seconds, tolerance=tolerance)
        metrics["invalid_share"] = self._assembly.invalid_share()
        return metrics | {f"success/{task}": value for task, value in self._sampler.success.items()}

    def _finish(self) -> None:
        """Nothing is in play after the last iteration: what has no outcome expires, what has no use is surplus."""
        for entry in self._ledger.unfinished():
            # Only of a run that was resumed with fewer iterations than it had begun.
            if entry.outcome is None:
                self._ledger.settle(entry.episode_id, "EXPIRED", reason="RUN_OVER")
        scored = [entry.episode_id for entry in self._ledger.unfinished() if entry.outcome == "SCORED"]
        self._ledger.use(scored, "SURPLUS")
