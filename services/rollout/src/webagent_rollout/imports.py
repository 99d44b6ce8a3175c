"""VisualAgentBench's behaviour cloning data for WebArena-Lite, as demonstrations of ours.

    python -m webagent_rollout.imports web_policy_sft.json OUT.trajectories --inference 127.0.0.1:50052 [--thinking]

The file is a JSON list; each item's `conversations` is one step: what the human says holds the task, earlier rounds in
short and the newest page in full, what the model says is the action. Both layouts are read: one text with Llama-3's
header tokens between rounds, and one message a round. Every item becomes an episode of one turn, its prompt composed
and rendered as any episode's; an item that cannot be read is left out and counted by cause.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webagent.evaluator.v1.evaluator_pb2 import OUTCOME_SUCCESS
from webagent.inference.v1.inference_pb2 import ROLE_USER, Message, RenderRequest
from webagent.trajectory.v1.trajectory_pb2 import EPISODE_STATUS_SCORED, Trajectory

from webagent_rollout.augment import Renderer
from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.file_command import add_files, causes_of, parsed, write_all
from webagent_rollout.prompt import Page, compose
from webagent_rollout.reply import demonstrate

PROMPT = "webarena"
_HEADER = re.compile(r"<\|eot_id\|><\|start_header_id\|>(user|assistant)<\|end_header_id\|>\n*")
_ROUND = re.compile(r"\s*Round \d+\s*$")
_OPENING = re.compile(r"^(?:Task Instruction:\s*)?(?P<task>.*?)\s*Round \d+\s*", re.DOTALL)


class UnreadableError(Exception):
    """An item that is not a step; the message is its cause."""


@dataclass(frozen=True)
class Step:
    """One step of a demonstration."""

    instruction: str
    past_actions: tuple[str, ...]
    page: str
    action: str


def read_step(item: Mapping[str, Any]) -> Step:
    """The step that an item holds."""
    said = [(str(part.get("from", part.get("role"))), str(part.get("value", part.get("content")))) for part in
            item.get("conversations", item.get("messages", []))]  # fmt: skip
    said = [(who, text) for who, text in said if who != "system"]
    if len(said) < 2 or len(said) % 2 or said[-1][0] not in {"gpt", "assistant"}:
        raise UnreadableError("no reply at the end")
    texts = [text for _, text in said]
    action = texts[-1].strip()
    if not action:
        raise UnreadableError("empty reply")
    pages, past = _one_text(texts[0]) if len(texts) == 2 else (texts[:-1:2], texts[1:-1:2])
    opening = _OPENING.match(texts[0])
    if opening is None or not opening["task"]:
        raise UnreadableError("no task")
    page = _OPENING.sub("", pages[-1], count=1) if len(texts) > 2 or not _HEADER.search(texts[0]) else pages[-1]
    if not page.strip():
        raise UnreadableError("no page")
    return Step(opening["task"], tuple(_ROUND.sub("", one).strip() for one in past), page.strip(), action)


def _one_text(text: str) -> tuple[list[str], list[str]]:
    """Pages and earlier actions of a text in which header tokens part the rounds."""
    parts = _HEADER.split(text)
    if len(parts) == 1:
        return [text], []
    pairs = list(zip(parts[1::2], parts[2::2], strict=True))
    pages = [part for role, part in pairs if role == "user"]
    replies = [part for role, part in pairs if role == "assistant"]
    # The last one is where the model goes on.
    return pages, [reply for reply in replies if reply.strip()][: len(pages) - 1]


async def demonstrations(
    items: Iterable[Mapping[str, Any]], renderer: Renderer, left_out: Counter[str], *, thinking: bool
) -> AsyncIterator[Trajectory]:
    """An episode of one turn for each readable item; `left_out` counts the others."""
    spelled: dict[str, Sequence[int]] = {}

    async def spell(action: str) -> Sequence[int]:
        if action not in spelled:
            request = RenderRequest(messages=[Message(role=ROLE_USER, text=".")])
            request.reply_text = demonstrate(action, thinking=thinking)
            spelled[action] = (await renderer.render(request)).reply_token_ids
        return spelled[action]

    for number, item in enumerate(items):
        try:
            step = read_step(item)
        except UnreadableError as error:
            left_out[str(error)] += 1
            continue
        made = Trajectory(status=EPISODE_STATUS_SCORED, reward=1.0, instruction=step.instruction)
        made.verdict.outcome = OUTCOME_SUCCESS
        made.episode.episode_id = f"import-{number}"
        agent = made.episode.agent
        agent.prompt, agent.thinking, agent.compress_context = PROMPT, thinking, True
        messages = compose(
            PROMPT,
            thinking=thinking,
            compress=True,
            instruction=step.instruction,
            pages=[*(Page("") for _ in step.past_actions), Page(step.page)],
            replies=[await spell(action) for action in step.past_actions],
        )
        text = demonstrate(step.action, thinking=thinking)
        rendered = await renderer.render(RenderRequest(messages=messages, reply_text=text))
        turn = made.turns.add(reply_text=text, action_text=step.action, observation_text=step.page)
        turn.prompt_token_ids[:] = rendered.prompt_token_ids
        turn.reply_token_ids[:] = rendered.reply_token_ids
        turn.model.CopyFrom(rendered.model)
        yield made


async def convert(options: argparse.Namespace) -> None:
    """Reads one file and writes the other."""
    items = json.loads(options.source.read_text())
    inference = InferenceClient(TargetConfig(target=options.inference), LimitsConfig(), "imports", training=False)
    left_out: Counter[str] = Counter()
    try:
        written = await write_all(demonstrations(items, inference, left_out, thinking=options.thinking), options.target)
    finally:
        await inference.close()
    print(f"{written} steps written to {options.target}{causes_of(left_out)}")  # noqa: T201  the command's answer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Imports VisualAgentBench's behaviour cloning data.")
    add_files(parser, inference="where prompts are rendered")
    parser.add_argument("--thinking", action="store_true", help="word replies in the thinking form")
    asyncio.run(convert(parsed(parser)))


if __name__ == "__main__":
    main()
