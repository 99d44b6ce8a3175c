"""WebRL's self-evolving tasks: of what a phase failed at, a suite for the next one.

    python -m webagent_rollout.new_tasks IN.trajectories [...] OUT.yaml --suite NAME [--like SUITE.yaml] [--count 50]
        [--endpoint http://host:8000/v1 --model NAME]        without an endpoint: a template

Of all tasks that were SCORED, those are failed whose success rate is below --below. A new task begins where the failed
one does that it is like. OUT is a suite of env (`suites.files`); the sites, and what else it says of a task, are taken
from --like, the suite that was played. The new tasks have no rule: their episodes wait for a reward model's verdict
(`webagent_rollout.reward_model judge`), and are learned from as stored ones. WebRL also asks its critic which of them
are too easy or too hard; here that is found out by playing them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from webagent.trajectory.v1.trajectory_pb2 import EPISODE_STATUS_SCORED, Trajectory
from webagent_runtime import delimited
from webagent_runtime.config import PayloadConfig
from webagent_runtime.payloads import PayloadStore

from webagent_rollout.endpoint import model_at
from webagent_rollout.ideas import Asked, Idea, Inventor, Template, Tried
from webagent_rollout.pages import Pages, page_text

# What a new task takes over from the one that it is like.
_KEPT = ("site", "start_url", "allowed_hosts", "changes_state")
_LONGEST_ID = 100


async def tried(episodes: Iterable[Trajectory], pages: Pages) -> AsyncIterator[tuple[Tried, float]]:
    """The tasks of the SCORED episodes, each with its success rate, in the order in which they first came."""
    firsts: dict[tuple[str, str], Trajectory] = {}
    rewards: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.status == EPISODE_STATUS_SCORED and episode.turns:
            key = (episode.episode.task.task_id, episode.instruction)
            firsts.setdefault(key, episode)
            rewards[key].append(episode.reward)
    for key, episode in firsts.items():
        first = episode.turns[0]
        one = Tried(key[0], episode.instruction, first.url, await page_text(first, pages))
        yield one, sum(rewards[key]) / len(rewards[key])


def suite_of(name: str, ideas: Sequence[Idea], like: Mapping[str, Any]) -> dict[str, Any]:
    """The ideas as a suite of env; `like` is the suite that was played, or empty."""
    known = {str(task["id"]): task for task in like.get("tasks", ())}
    suite: dict[str, Any] = {"suite": name} | {key: like[key] for key in ("viewport", "sites") if key in like}
    suite["tasks"] = []
    for idea in ideas:
        before = known.get(idea.like.task_id, {"start_url": idea.like.url})
        kept = {key: before[key] for key in _KEPT if key in before}
        digest = hashlib.sha256(idea.instruction.encode()).hexdigest()[:8]
        task_id = f"{idea.like.task_id[:_LONGEST_ID]}-{digest}"
        suite["tasks"].append({"id": task_id, "instruction": idea.instruction} | kept)
    return suite


async def invent(options: argparse.Namespace) -> None:
    """Reads the episodes and writes the suite."""
    store = PayloadStore(PayloadConfig(uri=options.payloads or options.sources[0].parent.resolve().as_uri()))
    episodes = (one for source in options.sources for one in delimited.read(source, Trajectory))
    rated = [found async for found in tried(episodes, store)]
    failed = [one for one, rate in rated if rate < options.below]
    inventor: Inventor = Template(options.seed)
    if options.endpoint:
        inventor = Asked(model_at(options.endpoint, options.model, max_tokens=1024))
    ideas = await inventor.invent(failed, [one for one, _ in rated], options.count)
    if ideas:
        like = yaml.safe_load(options.like.read_text(encoding="utf-8")) if options.like else {}
        suite = suite_of(options.suite, ideas, like)
        options.target.write_text(yaml.safe_dump(suite, sort_keys=False, allow_unicode=True), encoding="utf-8")
    where = f"written to {options.target}" if ideas else "found; nothing was written"
    print(f"{len(rated)} tasks played, {len(failed)} of them failed; {len(ideas)} new ones {where}")  # noqa: T201  the command's answer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Makes new tasks of those that were failed.")
    parser.add_argument("sources", type=Path, nargs="+", help="episodes, such as a run's archive.trajectories")
    parser.add_argument("target", type=Path, help="the new suite")
    parser.add_argument("--suite", required=True, help="its name")
    parser.add_argument("--like", type=Path, help="suite that was played: sites and start pages are taken from it")
    parser.add_argument("--count", type=int, default=50, help="new tasks, at most")
    parser.add_argument("--below", type=float, default=0.5, help="tasks with a lower success rate are failed")
    parser.add_argument("--seed", type=int, default=0, help="of the template's choices")
    parser.add_argument("--endpoint", help="OpenAI-compatible endpoint; without one, a template has the ideas")
    parser.add_argument("--model", default="default", help="model that the endpoint is asked for")
    parser.add_argument("--payloads", help="where long pages are kept; else beside the first source")
    options = parser.parse_args()
    if options.target.exists():
        parser.error(f"{options.target} exists already")
    asyncio.run(invent(options))


if __name__ == "__main__":
    main()
