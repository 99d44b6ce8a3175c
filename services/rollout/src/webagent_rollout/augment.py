"""R1-CoT's data: demonstrations again, their replies now with a chain of thought before the action.

    python -m webagent_rollout.augment IN.trajectories OUT.trajectories --inference 127.0.0.1:50052
        [--endpoint http://host:8000/v1 --model NAME]        without an endpoint: a template

What always holds: the actions are the demonstrated ones; prompts pass through the same code as any episode's and are
rendered by inference, so the rows are those of a policy that is asked to think. The page of a turn is what the
demonstration saw. Episodes that were not judged successful, or whose pages are gone, are left out and counted.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from webagent.env.v1.env_pb2 import Observation
from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_SUCCESS
from webagent.inference.v1.inference_pb2 import RenderRequest, RenderResponse
from webagent.trajectory.v1.trajectory_pb2 import Trajectory
from webagent_runtime import delimited
from webagent_runtime.config import PayloadConfig
from webagent_runtime.payloads import PayloadStore

from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.file_command import add_files, causes_of, parsed, write_all
from webagent_rollout.pages import Pages, page_text
from webagent_rollout.prompt import Page, compose, page_of, past_reply
from webagent_rollout.reply import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from webagent_rollout.thoughts import Move, Thinker, cleaned, thinker_of


class Renderer(Protocol):
    """What is needed of the inference service."""

    async def render(self, request: RenderRequest) -> RenderResponse:
        """Turns messages into token ids."""


async def augment(
    demonstrations: Iterable[Trajectory], thinker: Thinker, renderer: Renderer, pages: Pages, left_out: Counter[str]
) -> AsyncIterator[Trajectory]:
    """Each successful demonstration with reasonings, in order; `left_out` counts the others by cause."""
    for demonstration in demonstrations:
        if demonstration.verdict.outcome != OUTCOME_SUCCESS:
            left_out["not successful"] += 1
        elif any(not turn.observation_text and not turn.HasField("observation_ref") for turn in demonstration.turns):
            left_out["page not kept"] += 1
        else:
            yield await _with_thoughts(demonstration, thinker, renderer, pages)


async def _with_thoughts(demonstration: Trajectory, thinker: Thinker, renderer: Renderer, pages: Pages) -> Trajectory:
    made = Trajectory()
    made.CopyFrom(demonstration)
    made.episode.agent.thinking = True
    del made.turns[:]
    shown: list[Page] = []
    problem = ""
    for turn in demonstration.turns:
        observation = Observation(text=await page_text(turn, pages))
        shown.append(page_of(observation, problem))
        problem = turn.result.message
        history = [earlier.action_text for earlier in made.turns]
        move = Move(demonstration.instruction, history, observation.text, turn.action_text)
        thought = cleaned(await thinker.think(move))
        text = f"{THINK_OPEN}{thought}{THINK_CLOSE}{ANSWER_OPEN}{turn.action_text}{ANSWER_CLOSE}"
        messages = compose(
            made.episode.agent.prompt,
            thinking=True,
            compress=made.episode.agent.compress_context,
            instruction=demonstration.instruction,
            pages=shown,
            replies=[past_reply(made.episode.agent.prompt, earlier) for earlier in made.turns],
        )
        rendered = await renderer.render(RenderRequest(messages=messages, reply_text=text))
        again = made.turns.add()
        again.CopyFrom(turn)
        again.reply_text = text
        again.prompt_token_ids[:] = rendered.prompt_token_ids
        again.reply_token_ids[:] = rendered.reply_token_ids
        again.model.CopyFrom(rendered.model)
    return made


async def rewrite(options: argparse.Namespace) -> None:
    """Reads one file and writes the other."""
    thinker = thinker_of(options.endpoint, model=options.model)
    inference = InferenceClient(TargetConfig(target=options.inference), LimitsConfig(), "augment", training=False)
    store = PayloadStore(PayloadConfig(uri=options.payloads or options.source.parent.resolve().as_uri()))
    left_out: Counter[str] = Counter()
    try:
        written = await write_all(
            augment(delimited.read(options.source, Trajectory), thinker, inference, store, left_out), options.target
        )
    finally:
        await inference.close()
    print(f"{written} demonstrations written to {options.target}{causes_of(left_out)}")  # noqa: T201  the command's answer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Adds a chain of thought to demonstrations.")
    add_files(parser, inference="where prompts are rendered")
    parser.add_argument("--endpoint", help="OpenAI-compatible endpoint; without one, a template words the reasonings")
    parser.add_argument("--model", default="default", help="model that the endpoint is asked for")
    parser.add_argument("--payloads", help="where long pages are kept; else beside the source")
    asyncio.run(rewrite(parsed(parser)))


if __name__ == "__main__":
    main()
