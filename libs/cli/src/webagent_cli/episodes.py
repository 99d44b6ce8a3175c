"""Plays many episodes at once over RolloutService.RunEpisode and keeps every one of them.

`play` asks for each (task, seed) until its episode is SCORED or its attempts are used up, and appends each finished
trajectory to a file before it counts it. What the file holds already is not played again, so an interrupted phase goes
on where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import grpc
from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.inference.v1 import inference_pb2
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import from_rpc

from webagent_cli.config import AgentConfig, LoopConfig
from webagent_cli.errors import RunError

RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED)
BACKOFF_SECONDS = 1.0

Trajectory = trajectory_pb2.Trajectory
Policy = Literal["sampled", "expert", "random"]
DEMOS = "demos"


@dataclass(frozen=True)
class Job:
    """One episode to play."""

    task: str
    seed: int
    screenshots: bool = False


@dataclass(frozen=True)
class Player:
    """Who plays, and under which settings."""

    run_id: str
    phase: str
    config: LoopConfig
    policy: Policy = "sampled"
    temperature: float = 1.0
    min_version: int = 0
    sample: int = 0

    def spec(self, job: Job) -> trajectory_pb2.EpisodeSpec:
        """The episode's specification, with an id of its own for each attempt."""
        spec = trajectory_pb2.EpisodeSpec(
            episode_id=f"{self.run_id}.{self.phase}.{job.task}.{job.seed}.{uuid.uuid4().hex[:8]}",
            task=env_pb2.TaskRef(suite=self.config.tasks.suite, task_id=job.task),
            seed=job.seed,
            agent=self._agent(screenshots=job.screenshots),
        )
        if self.policy == "expert":
            spec.expert.SetInParent()
        elif self.policy == "random":
            spec.random.SetInParent()
        else:
            sampling = inference_pb2.SamplingSettings(
                temperature=self.temperature, max_tokens=self.config.agent.max_reply_tokens, seed=self._draw(job)
            )
            spec.sampled.CopyFrom(trajectory_pb2.SampledPolicy(sampling=sampling, min_weights_version=self.min_version))
        return spec

    def _draw(self, job: Job) -> int:
        """Seed of the reply's random choices: the page's, but for further samples of one page."""
        if not self.sample:
            return job.seed
        return int.from_bytes(hashlib.sha256(f"{job.seed}/{self.sample}".encode()).digest()[:4], "big")

    def played(self, trajectory: Trajectory) -> bool:
        """Whether an episode was played under these settings, screenshots apart."""
        then = trajectory_pb2.EpisodeSpec()
        then.CopyFrom(trajectory.episode)
        now = self.spec(Job(then.task.task_id, then.seed, then.agent.screenshots))
        now.episode_id = then.episode_id
        return then == now

    def strangers(self, trajectory: Trajectory) -> set[int]:
        """Versions other than the player's that replied in an episode; a minimum lets newer ones through."""
        replied = {span.weights_version for turn in trajectory.turns for span in turn.spans}
        return replied - {self.min_version}

    def _agent(self, *, screenshots: bool) -> trajectory_pb2.AgentSettings:
        """Demonstrations are played as training is, all else as evaluations are."""
        if self.phase == DEMOS:
            return agent_settings(self.config.agent, screenshots=screenshots)
        settings = agent_settings(self.config.evaluated_agent, screenshots=screenshots)
        settings.max_equal_actions = self.config.eval.max_equal_actions
        return settings


def agent_settings(agent: AgentConfig, *, screenshots: bool) -> trajectory_pb2.AgentSettings:
    """The agent block as the contract has it."""
    return trajectory_pb2.AgentSettings(
        prompt=agent.prompt,
        thinking=agent.thinking,
        max_turns=agent.max_turns,
        max_unusable_replies=agent.max_unusable_replies,
        screenshots=screenshots,
        compress_context=agent.compress_context,
        max_observation_bytes=agent.max_observation_bytes,
        omit_attributes=agent.omit_attributes,
    )


def jobs(tasks: Iterable[str], seeds: Iterable[int], *, screenshots: int = 0) -> list[Job]:
    """Every task with every seed, tasks in turn so that progress is even; the first seeds keep screenshots."""
    tasks = list(tasks)
    return [Job(task, seed, index < screenshots) for index, seed in enumerate(seeds) for task in tasks]


def final_outcomes(trajectories: Iterable[Trajectory]) -> dict[tuple[str, int], Trajectory]:
    """The trajectory that counts for each task and seed: the first SCORED one, else the last."""
    final: dict[tuple[str, int], Trajectory] = {}
    for trajectory in trajectories:
        key = (trajectory.episode.task.task_id, trajectory.episode.seed)
        if key not in final or final[key].status != trajectory_pb2.EPISODE_STATUS_SCORED:
            final[key] = trajectory
    return final


def of_last_settings(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Those of a file that were played under the settings of its last one; task, seed and screenshots may differ."""
    last = _settings(trajectories[-1]) if trajectories else None
    return [one for one in trajectories if _settings(one) == last]


def _settings(trajectory: Trajectory) -> trajectory_pb2.EpisodeSpec:
    settings = trajectory_pb2.EpisodeSpec()
    settings.CopyFrom(trajectory.episode)
    for name in ("episode_id", "seed"):
        settings.ClearField(name)
    settings.task.ClearField("task_id")
    settings.agent.ClearField("screenshots")
    if settings.HasField("sampled"):
        settings.sampled.sampling.ClearField("seed")
    return settings


def succeeded(trajectory: Trajectory) -> bool:
    """True if the evaluator said so."""
    return trajectory.verdict.outcome == evaluator_pb2.OUTCOME_SUCCESS


async def run_episode(
    rollout: rollout_pb2_grpc.RolloutServiceAsyncStub, spec: trajectory_pb2.EpisodeSpec, *, bound: float
) -> AsyncIterator[rollout_pb2.RunEpisodeResponse]:
    """The events of one episode."""
    async for event in rollout.RunEpisode(rollout_pb2.RunEpisodeRequest(episode=spec), timeout=bound):
        yield event


class Attempts:
    """Plays jobs until each is SCORED, with bounded attempts and concurrency."""

    def __init__(
        self,
        rollout: rollout_pb2_grpc.RolloutServiceAsyncStub,
        player: Player,
        *,
        path: Path,
        keep: Callable[[Trajectory], bool] = lambda _: True,
    ) -> None:
        self._rollout = rollout
        self._player = player
        self._path = path
        self._keep = keep
        self._limits = player.config.eval

    async def play(self, todo: Sequence[Job], report: Callable[[Trajectory], None]) -> None:
        """Plays every job; each finished episode is appended to the file, then reported."""
        waiting = list(reversed(todo))

        async def worker() -> None:
            while waiting:
                job = waiting.pop()
                trajectory = await self._settle(job)
                report(trajectory)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limits.concurrency, len(waiting))):
                    group.create_task(worker())
        except ExceptionGroup as failures:
            # The workers' failures are alike, and the first is what there is to say.
            raise failures.exceptions[0] from failures

    async def _settle(self, job: Job) -> Trajectory:
        for attempt in range(self._limits.attempts):
            trajectory = await self._attempt(job)
            self._refuse_strangers(trajectory)
            if self._keep(trajectory):
                delimited.append(self._path, trajectory)
            if trajectory.status == trajectory_pb2.EPISODE_STATUS_SCORED:
                break
            if attempt + 1 < self._limits.attempts:
                await asyncio.sleep(BACKOFF_SECONDS)
        return trajectory

    def _refuse_strangers(self, trajectory: Trajectory) -> None:
        if strangers := self._player.strangers(trajectory):
            raise RunError(
                f"{self._player.phase} is played by policy version {self._player.min_version}, but version "
                f"{min(strangers)} replied: the run has trained on since, so begin a new one"
            )

    async def _attempt(self, job: Job) -> Trajectory:
        """One whole episode; a stack that is restarting is waited for within the episode's bound."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.episode_seconds
        while True:
            spec = self._player.spec(job)
            try:
                async for event in run_episode(self._rollout, spec, bound=max(1.0, deadline - loop.time())):
                    if event.HasField("finished"):
                        return event.finished.trajectory
                reason, detail = "NO_OUTCOME", "the stream ended without an outcome"
            except grpc.aio.AioRpcError as error:
                if error.code() in RETRYABLE and loop.time() + BACKOFF_SECONDS < deadline:
                    await asyncio.sleep(BACKOFF_SECONDS)
                    continue
                if error.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}:
                    raise ConfigError(str(from_rpc(error))) from error
                reason, detail = error.code().name, error.details() or ""
            return Trajectory(
                run_id=self._player.run_id,
                episode=spec,
                status=trajectory_pb2.EPISODE_STATUS_INVALID,
                reason=reason,
                detail=detail,
            )
