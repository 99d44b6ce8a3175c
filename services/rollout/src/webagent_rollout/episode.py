"""The agent loop: one episode, from the first page to the verdict.

    create session -> ( compose -> reply -> cut the action out -> step )* -> evaluate -> close session

What always holds: the session is closed, whatever happens, before `play` returns or raises. The trajectory is filled in
as the episode goes, so that a fault leaves in it what had been played. The action is passed on as text and never
parsed. A reply without a usable action is answered in the next turn and has used its turn up. The verdict is asked for
however the episode ended; a reward is set only if one was reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic

from webagent.env.v1.env_pb2 import ACTION_STATUS_REJECTED, Observation, SessionInfo, StepResponse
from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_INVALID, OUTCOME_SUCCESS
from webagent.trajectory.v1.trajectory_pb2 import (
    END_REASON_CONTEXT_FULL,
    END_REASON_EQUAL_ACTIONS,
    END_REASON_EXIT,
    END_REASON_PAGE,
    END_REASON_TRUNCATED,
    END_REASON_TURN_BUDGET,
    END_REASON_UNUSABLE_REPLIES,
    EPISODE_STATUS_INVALID,
    EPISODE_STATUS_SCORED,
    AgentSettings,
    EndReason,
    Trajectory,
    Turn,
)

from webagent_rollout.ports import ContextFullError, Payloads, Ports, View
from webagent_rollout.prompt import Page, compose, page_of, past_reply
from webagent_rollout.reply import cut_action

MAX_INLINE_OBSERVATION_BYTES = 16 * 1024


@dataclass(frozen=True)
class Started:
    """The session is open."""

    instruction: str
    session: SessionInfo


@dataclass(frozen=True)
class Played:
    """A turn was taken."""

    index: int
    turn: Turn


Listener = Callable[[Started | Played], Awaitable[None]]


@dataclass
class Episode:
    """An episode under way: what has been seen and said so far."""

    trajectory: Trajectory
    ports: Ports
    observation: Observation
    pages: list[Page] = field(default_factory=list)
    unusable_in_a_row: int = 0
    answer: str | None = None

    @property
    def agent(self) -> AgentSettings:
        """How the agent is asked to behave."""
        return self.trajectory.episode.agent

    def view(self) -> View:
        """Shows the policy the conversation so far."""
        turns = self.trajectory.turns
        messages = compose(
            self.agent.prompt,
            thinking=self.agent.thinking,
            compress=self.agent.compress_context,
            instruction=self.trajectory.instruction,
            pages=self.pages,
            replies=[past_reply(self.agent.prompt, turn) for turn in turns],
        )
        return View(
            messages=messages,
            instruction=self.trajectory.instruction,
            observation=self.observation.text,
            past_actions=[turn.action_text for turn in turns],
            turn_index=len(turns),
        )


async def play(trajectory: Trajectory, ports: Ports, tell: Listener) -> None:
    """Plays `trajectory.episode` to its verdict, filling the trajectory in on the way."""
    session = ports.session
    try:
        opened = await session.create(trajectory.episode)
        trajectory.instruction = opened.instruction
        await tell(Started(opened.instruction, opened.session))
        episode = Episode(trajectory, ports, opened.observation, [page_of(opened.observation)])
        trajectory.end_reason = await take_turns(episode, tell)
        await judge(episode)
    finally:
        await uninterrupted(session.close())


async def take_turns(episode: Episode, tell: Listener) -> EndReason.ValueType:
    """Takes turns until something ends the episode, and says what did."""
    turns = episode.trajectory.turns
    while len(turns) < episode.agent.max_turns:
        try:
            step = await take_turn(episode)
        except ContextFullError:
            if not turns:
                raise
            return END_REASON_CONTEXT_FULL
        await tell(Played(len(turns) - 1, turns[-1]))
        end = ended_by(episode, step)
        if end is not None:
            return end
        episode.observation = step.observation
        episode.pages.append(page_of(step.observation, step.result.message))
    return END_REASON_TURN_BUDGET


async def take_turn(episode: Episode) -> StepResponse:
    """Has the policy reply to the newest page, and does what it says."""
    index = len(episode.trajectory.turns)
    asked = monotonic()
    turn = await episode.ports.policy.reply(episode.view())
    replied = monotonic()
    turn.action_text = cut_action(turn.reply_text, thinking=episode.agent.thinking)
    step = await episode.ports.session.step(index, turn.action_text)
    turn.generate_seconds, turn.step_seconds = replied - asked, monotonic() - replied
    turn.result.CopyFrom(step.result)
    name = f"{episode.ports.session.session_id}/{index}"
    await keep_observation(turn, episode.observation, episode.ports.payloads, name)
    episode.trajectory.turns.append(turn)
    return step


def ended_by(episode: Episode, step: StepResponse) -> EndReason.ValueType | None:
    """Says whether this step ended the episode, and how; notes the answer that an exit gave."""
    rejected = step.result.status == ACTION_STATUS_REJECTED
    episode.unusable_in_a_row = episode.unusable_in_a_row + 1 if rejected else 0
    if step.terminated:
        if step.result.action.WhichOneof("kind") != "exit":
            return END_REASON_PAGE
        episode.answer = step.result.action.exit.message
        return END_REASON_EXIT
    if step.truncated:
        return END_REASON_TRUNCATED
    limit = episode.agent.max_unusable_replies
    if limit and episode.unusable_in_a_row >= limit:
        return END_REASON_UNUSABLE_REPLIES
    limit = episode.agent.max_equal_actions
    newest = [turn.action_text for turn in episode.trajectory.turns[-limit:]] if limit else []
    return END_REASON_EQUAL_ACTIONS if limit and newest == newest[-1:] * limit else None


async def judge(episode: Episode) -> None:
    """Asks for the verdict and turns it into the outcome."""
    trajectory = episode.trajectory
    verdict = await episode.ports.evaluator.evaluate(episode.ports.session, episode.answer)
    trajectory.verdict.CopyFrom(verdict)
    if verdict.outcome == OUTCOME_INVALID:
        trajectory.status = EPISODE_STATUS_INVALID
        trajectory.reason = verdict.reason
        trajectory.detail = "; ".join(check.explanation for check in verdict.checks) or "no verdict could be reached"
        return
    trajectory.status = EPISODE_STATUS_SCORED
    trajectory.reward = 1.0 if verdict.outcome == OUTCOME_SUCCESS else 0.0


async def keep_observation(turn: Turn, observation: Observation, payloads: Payloads, name: str) -> None:
    """Records what the policy saw: short text in the turn, the rest by reference."""
    turn.url = observation.url
    if len(observation.text.encode()) <= MAX_INLINE_OBSERVATION_BYTES:
        turn.observation_text = observation.text
    else:
        turn.observation_ref.CopyFrom(await payloads.put(f"{name}.html", observation.text.encode(), "text/html"))
    if observation.screenshot:
        turn.screenshot_ref.CopyFrom(await payloads.put(f"{name}.png", observation.screenshot, "image/png"))


async def uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Runs `work`, which bounds itself, to its end; a cancellation meanwhile comes through after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
