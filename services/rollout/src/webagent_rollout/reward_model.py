"""WebRL's outcome reward model: what it learns from, and its verdicts on stored episodes.

    python -m webagent_rollout.reward_model rows IN.trajectories OUT.trajectories
    python -m webagent_rollout.reward_model judge IN.trajectories OUT.trajectories

`rows` makes a demonstration of each judged episode: task, actions and last page in the prompt, YES or NO as the reply;
the trainer's cloning phase makes a reward model of them. `judge` asks the inference service that serves this model, and
writes the episodes with its verdicts: reward 1 where YES is at least as likely as NO. Episodes of tasks without a rule
(`new_tasks`), which no evaluator could judge, are judged as well. What an episode was sampled from stays as it is, so
the result can be learned from as any stored episodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterable
from functools import cache
from importlib.resources import files
from typing import Protocol

from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_FAILURE, OUTCOME_INVALID, OUTCOME_SUCCESS
from webagent.inference.v1.inference_pb2 import (
    ROLE_SYSTEM,
    ROLE_USER,
    Message,
    RenderRequest,
    RenderResponse,
    ScoreRequest,
    ScoreResponse,
)
from webagent.trajectory.v1.trajectory_pb2 import EPISODE_STATUS_SCORED, Trajectory
from webagent_runtime import delimited
from webagent_runtime.config import PayloadConfig
from webagent_runtime.payloads import PayloadStore

from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.file_command import add_files, parsed
from webagent_rollout.pages import Pages, page_text

YES, NO = "YES", "NO"
# The evaluator's reason.
_NO_RULE = "RULE_UNSUPPORTED"


class Scorer(Protocol):
    """What is needed of the inference service."""

    async def render(self, request: RenderRequest) -> RenderResponse:
        """Turns messages into token ids."""

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Log-probabilities of given tokens."""


async def question(episode: Trajectory, pages: Pages) -> list[Message]:
    """What the reward model is asked about an episode."""
    page = await page_text(episode.turns[-1], pages)
    actions = "\n".join(f"{number}. {turn.action_text}" for number, turn in enumerate(episode.turns, 1))
    text = f"Task: {episode.instruction}\n\nActions:\n{actions}\n\nPage before the last action:\n{page}"
    return [Message(role=ROLE_SYSTEM, text=_system()), Message(role=ROLE_USER, text=text)]


async def rows(episodes: Iterable[Trajectory], scorer: Scorer, pages: Pages) -> AsyncIterator[Trajectory]:
    """A demonstration of each judged episode's verdict."""
    for episode in episodes:
        if not _judged(episode):
            continue
        reply = YES if episode.verdict.outcome == OUTCOME_SUCCESS else NO
        rendered = await scorer.render(RenderRequest(messages=await question(episode, pages), reply_text=reply))
        made = Trajectory(status=EPISODE_STATUS_SCORED, reward=1.0, instruction=episode.instruction)
        made.episode.episode_id = f"verdict-{episode.episode.episode_id}"
        made.verdict.outcome = OUTCOME_SUCCESS
        turn = made.turns.add(reply_text=reply, action_text=reply)
        turn.prompt_token_ids[:] = rendered.prompt_token_ids
        turn.reply_token_ids[:] = rendered.reply_token_ids
        turn.model.CopyFrom(rendered.model)
        yield made


async def judge(episodes: Iterable[Trajectory], scorer: Scorer, pages: Pages) -> AsyncIterator[Trajectory]:
    """The episodes with the reward model's verdicts instead of the evaluator's."""
    for episode in episodes:
        if not _judged(episode) and not _ruleless(episode):
            continue
        likely = {}
        for answer in (YES, NO):
            rendered = await scorer.render(RenderRequest(messages=await question(episode, pages), reply_text=answer))
            request = ScoreRequest(prompt_token_ids=rendered.prompt_token_ids, token_ids=rendered.reply_token_ids)
            likely[answer] = sum((await scorer.score(request)).logprobs)
        made = Trajectory()
        made.CopyFrom(episode)
        good = likely[YES] >= likely[NO]
        made.status, made.reward = EPISODE_STATUS_SCORED, float(good)
        made.ClearField("reason")
        made.ClearField("detail")
        made.verdict.Clear()
        made.verdict.outcome = OUTCOME_SUCCESS if good else OUTCOME_FAILURE
        share = 1.0 / (1.0 + math.exp(min(likely[NO] - likely[YES], 700.0)))
        check = made.verdict.checks.add(kind="reward-model", passed=good)
        check.evidence_json = json.dumps({"yes": likely[YES], "no": likely[NO]})
        check.explanation = f"the reward model finds YES {share:.0%} likely, of YES and NO"
        yield made


def _judged(episode: Trajectory) -> bool:
    return episode.verdict.outcome in {OUTCOME_SUCCESS, OUTCOME_FAILURE} and bool(episode.turns)


def _ruleless(episode: Trajectory) -> bool:
    """Whether it was played to its end and only its task's rule was missing."""
    verdict = episode.verdict
    without = verdict.reason == _NO_RULE and verdict.rule.WhichOneof("dialect") is None
    return verdict.outcome == OUTCOME_INVALID and without and bool(episode.turns)


@cache
def _system() -> str:
    return (files("webagent_rollout") / "prompts" / "reward_model.txt").read_text(encoding="utf-8").strip()


async def convert(options: argparse.Namespace) -> None:
    """Reads one file and writes the other."""
    inference = InferenceClient(TargetConfig(target=options.inference), LimitsConfig(), "reward-model", training=False)
    store = PayloadStore(PayloadConfig(uri=options.payloads or options.source.parent.resolve().as_uri()))
    work = rows if options.what == "rows" else judge
    good, written = 0, 0
    try:
        async for made in work(delimited.read(options.source, Trajectory), inference, store):
            delimited.append(options.target, made)
            written += 1
            good += made.turns[0].reply_text == YES if options.what == "rows" else made.reward > 0
    finally:
        await inference.close()
    print(f"{written} episodes written to {options.target}, {good} of them {YES}")  # noqa: T201  the command's answer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Rows for an outcome reward model, and its verdicts.")
    parser.add_argument("what", choices=["rows", "judge"])
    add_files(parser, inference="what renders; for `judge`, the reward model")
    parser.add_argument("--payloads", help="where long pages are kept; else beside the source")
    asyncio.run(convert(parsed(parser)))


if __name__ == "__main__":
    main()
