"""Plays an episode to exactly one outcome.

`Player.play` returns one Trajectory whatever happens, short of its own cancellation: SCORED when the evaluator reached
a verdict, EXPIRED when the request's deadline passed first, INVALID with a stable reason for everything else. A fault
never becomes a reward. When it returns or is cancelled, the browser session is closed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time

import structlog
from webagent.trajectory.v1.trajectory_pb2 import (
    EPISODE_STATUS_EXPIRED,
    EPISODE_STATUS_INVALID,
    EPISODE_STATUS_UNSPECIFIED,
    EpisodeStatus,
    RolloutRequest,
    Trajectory,
)
from webagent_runtime.errors import ServiceError
from webagent_runtime.metrics import SESSIONS

from webagent_rollout.clients import EnvSession, EvaluatorClient, InferenceClient
from webagent_rollout.config import RolloutConfig
from webagent_rollout.episode import Listener, Played, Started, play
from webagent_rollout.experts import ExpertLost
from webagent_rollout.policies import policy_of
from webagent_rollout.ports import ContextFullError, Payloads, Ports
from webagent_rollout.requests import check

log = structlog.get_logger()


class Player:
    """Opens the clients of an attempt, plays it and names its outcome."""

    def __init__(self, config: RolloutConfig, payloads: Payloads) -> None:
        self._config = config
        self._payloads = payloads
        self._evaluator = EvaluatorClient(config.evaluator, config.limits)

    async def play(self, request: RolloutRequest, *, delivery: int, tell: Listener | None = None) -> Trajectory:
        """Plays the episode in a new session and returns its outcome."""
        trajectory = Trajectory(
            run_id=request.run_id, group_id=request.group_id, episode=request.episode, delivery=delivery
        )
        trajectory.started_at.FromDatetime(datetime.now(UTC))
        try:
            with SESSIONS.track_inprogress():
                await self._within_time(trajectory, request, tell or _nobody)
        except ServiceError as error:
            _fail(trajectory, EPISODE_STATUS_INVALID, error.reason or error.code.name, str(error))
        except ExpertLost as error:
            _fail(trajectory, EPISODE_STATUS_INVALID, "EXPERT_LOST", str(error))
        except ContextFullError as error:
            _fail(trajectory, EPISODE_STATUS_INVALID, "PROMPT_TOO_LONG", f"the first page does not fit: {error}")
        except Exception as error:
            log.exception("episode failed", episode=request.episode.episode_id)
            _fail(trajectory, EPISODE_STATUS_INVALID, "INTERNAL", f"{type(error).__name__}: {error}")
        trajectory.ended_at.FromDatetime(datetime.now(UTC))
        log.info(
            "episode ended",
            episode=request.episode.episode_id,
            status=EpisodeStatus.Name(trajectory.status),
            reason=trajectory.reason,
            reward=trajectory.reward if trajectory.HasField("reward") else None,
            turns=len(trajectory.turns),
        )
        return trajectory

    async def close(self) -> None:
        """Closes what all episodes share."""
        await self._evaluator.close()

    async def _within_time(self, trajectory: Trajectory, request: RolloutRequest, tell: Listener) -> None:
        left, limit = seconds_until_deadline(request), self._config.limits.episode_seconds
        if left <= 0:
            _fail(trajectory, EPISODE_STATUS_EXPIRED, "DEADLINE", "taken after its deadline")
            return
        check(request.episode)
        try:
            async with asyncio.timeout(min(left, limit)) as clock, self._ports(trajectory) as ports:
                await play(trajectory, ports, tell)
        except TimeoutError:
            if not clock.expired():
                raise
            if trajectory.status != EPISODE_STATUS_UNSPECIFIED:
                return  # The outcome was there first; only the closing took longer.
            played = f"{len(trajectory.turns)} turns had been taken"
            if left <= limit:
                _fail(trajectory, EPISODE_STATUS_EXPIRED, "DEADLINE", f"the deadline passed; {played}")
            else:
                _fail(trajectory, EPISODE_STATUS_INVALID, "EPISODE_TIMEOUT", f"not over after {limit:g} s; {played}")

    @asynccontextmanager
    async def _ports(self, trajectory: Trajectory) -> AsyncIterator[Ports]:
        spec = trajectory.episode
        # The nonce keeps a replayed request, whose deliveries count from 1 again, out of a session left over.
        session_id = f"{spec.episode_id}.{trajectory.delivery}.{secrets.token_hex(4)}"
        # What the trainer asks for belongs to a run; an episode that somebody else asks for does not.
        training = bool(trajectory.run_id)
        inference = InferenceClient(self._config.inference, self._config.limits, session_id, training=training)
        try:
            yield Ports(
                session=EnvSession(self._config.env, self._config.limits, session_id),
                policy=policy_of(spec, inference),
                evaluator=self._evaluator,
                payloads=self._payloads,
            )
        finally:
            await inference.close()


def seconds_until_deadline(request: RolloutRequest) -> float:
    """Returns the time left for the request; without a deadline, for ever."""
    if not request.HasField("deadline"):
        return float("inf")
    return request.deadline.ToNanoseconds() / 1e9 - time()


def _fail(trajectory: Trajectory, status: EpisodeStatus.ValueType, reason: str, detail: str) -> None:
    trajectory.status, trajectory.reason, trajectory.detail = status, reason, detail
    trajectory.ClearField("reward")


async def _nobody(event: Started | Played) -> None:
    """Listens to nothing."""
