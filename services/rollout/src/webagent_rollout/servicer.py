"""RolloutService: converts between the contract and the player."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from grpc import StatusCode
from webagent.env.v1.env_pb2 import TaskRef
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1.trajectory_pb2 import RolloutRequest, Trajectory
from webagent_runtime.errors import ServiceError

from webagent_rollout.episode import Played, Started
from webagent_rollout.experts import EXPERTS
from webagent_rollout.player import Player
from webagent_rollout.prompt import LAYOUTS
from webagent_rollout.requests import check

Context = grpc.aio.ServicerContext[Any, Any]

RETRY_SECONDS = 1.0
# What env says of a task that does not exist is the caller's error here, not the episode's outcome.
NOT_FOUND_REASONS = frozenset({"SUITE_NOT_FOUND", "TASK_NOT_FOUND"})


class RolloutServicer(rollout_pb2_grpc.RolloutServiceServicer):
    """Plays up to `capacity` episodes at once, each streamed to its caller."""

    def __init__(self, player: Player, *, capacity: int) -> None:
        self._player = player
        self._capacity = capacity
        self._episodes: set[asyncio.Task[Trajectory]] = set()
        self._draining = False

    async def RunEpisode(
        self, request: rollout_pb2.RunEpisodeRequest, context: Context
    ) -> AsyncIterator[rollout_pb2.RunEpisodeResponse]:
        """Streams an episode as it is played. A caller that goes away ends the episode and its session."""
        self._admit(request)
        events: asyncio.Queue[Started | Played] = asyncio.Queue()
        episode = asyncio.create_task(
            self._player.play(RolloutRequest(episode=request.episode), delivery=1, tell=events.put),
            name=f"episode {request.episode.episode_id}",
        )
        self._episodes.add(episode)
        try:
            async for event in _until_done(events, episode):
                yield _response(event)
            if episode.cancelled():
                raise _draining()
            yield _finished(episode.result())
        finally:
            episode.cancel()
            await asyncio.wait([episode])
            self._episodes.discard(episode)

    async def GetCapabilities(
        self, request: rollout_pb2.GetCapabilitiesRequest, context: Context
    ) -> rollout_pb2.GetCapabilitiesResponse:
        """Names experts and prompts, and says how full this replica is."""
        tasks = (name.split("/", 1) for name in sorted(EXPERTS))
        return rollout_pb2.GetCapabilitiesResponse(
            experts=[TaskRef(suite=suite, task_id=task_id) for suite, task_id in tasks],
            prompts=sorted(LAYOUTS),
            capacity=self._capacity,
            episodes=len(self._episodes),
        )

    async def drain(self, seconds: float) -> None:
        """Refuses new episodes and waits for those under way, then ends them."""
        self._draining = True
        if self._episodes:
            await asyncio.wait(self._episodes, timeout=seconds)
        for episode in self._episodes:
            episode.cancel()

    def _admit(self, request: rollout_pb2.RunEpisodeRequest) -> None:
        check(request.episode)
        if self._draining:
            raise _draining()
        if len(self._episodes) >= self._capacity:
            raise ServiceError(
                StatusCode.RESOURCE_EXHAUSTED,
                "AT_CAPACITY",
                f"{self._capacity} episodes are being played",
                retry_after=RETRY_SECONDS,
            )


async def _until_done(
    events: asyncio.Queue[Started | Played], episode: asyncio.Task[Trajectory]
) -> AsyncIterator[Started | Played]:
    """Yields the events of an episode until it is done and none is left."""
    while not (episode.done() and events.empty()):
        getting = asyncio.ensure_future(events.get())
        try:
            await asyncio.wait([getting, episode], return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                yield getting.result()
        finally:
            getting.cancel()


def _draining() -> ServiceError:
    return ServiceError(StatusCode.UNAVAILABLE, "DRAINING", "this replica is shutting down", retry_after=RETRY_SECONDS)


def _response(event: Started | Played) -> rollout_pb2.RunEpisodeResponse:
    if isinstance(event, Started):
        started = rollout_pb2.EpisodeStarted(instruction=event.instruction, session=event.session)
        return rollout_pb2.RunEpisodeResponse(started=started)
    return rollout_pb2.RunEpisodeResponse(turn=rollout_pb2.TurnTaken(turn_index=event.index, turn=event.turn))


def _finished(trajectory: Trajectory) -> rollout_pb2.RunEpisodeResponse:
    if trajectory.reason in NOT_FOUND_REASONS:
        raise ServiceError(StatusCode.NOT_FOUND, trajectory.reason, trajectory.detail)
    return rollout_pb2.RunEpisodeResponse(finished=rollout_pb2.EpisodeFinished(trajectory=trajectory))
