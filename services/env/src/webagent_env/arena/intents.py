"""Tasks of the arena: intent templates, and their instantiations in a world.

A template yields goals: values for its placeholders, and the rule by which that instantiation is judged, all read from
an untouched world. A session's seed says which: seeds `10 n` to `10 n + 9` are ten goals in world n, each another one
where the world has so many. Seeds below `TRAINING_SEEDS` are for tests. Which side an instantiation is on is drawn by
its values, so none is ever on both, in whatever worlds it occurs.

Rules are WebArena's "eval" objects. `answer`, `stops_at` and `shows` write them, and none of those they write needs a
judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any
from zlib import crc32

from webagent_env.arena.world import World

TRAINING_SEEDS = 100_000
GOALS_OF_A_WORLD = 10
NOT_POSSIBLE = "N/A"
OR_NOT = f'If there is no such thing, answer "{NOT_POSSIBLE}".'
_MOST_TRIED = 400
_PLACE = re.compile(r"{{(\w+)}}")


def place_of(seed: int) -> tuple[int, int, bool]:
    """A seed's world, its goal there, and whether it is for training."""
    return *divmod(seed, GOALS_OF_A_WORLD), seed >= TRAINING_SEEDS


@dataclass(frozen=True, slots=True)
class Goal:
    """An instantiation: what fills the template's placeholders, and how it is judged."""

    values: Mapping[str, str]
    rule: Mapping[str, Any]


Goals = Callable[[World, Random], Iterator[Goal]]


@dataclass(frozen=True, slots=True)
class Intent:
    """An intent template. `sites` and `start` are WebArena's; two start pages are two tabs, the first one is shown."""

    name: str
    text: str
    goals: Goals
    sites: tuple[str, ...]
    start: tuple[str, ...]
    held_out: bool = False
    # Whether nobody is signed in at the start.
    signed_out: bool = False

    def goals_of(self, world: World, *, for_training: bool) -> tuple[Goal, ...]:
        """The instantiations in a world on one side of the split, at most as many as there are seeds for them."""
        draw = Random(f"{self.name}/{world.number}")  # noqa: S311 - no secret is drawn
        found: dict[str, Goal] = {}
        for goal in islice(self.goals(world, draw), _MOST_TRIED):
            key = json.dumps(goal.values, sort_keys=True)
            if bool(crc32(f"{self.name}{key}".encode()) & 64) == for_training:
                found.setdefault(key, goal)
            if len(found) == GOALS_OF_A_WORLD:
                break
        if not found:
            raise ValueError(f"{self.name} has no goal in world {world.number}")
        return tuple(found.values())

    def wording(self, goal: Goal) -> str:
        """What the agent is asked."""
        return _PLACE.sub(lambda place: goal.values[place[1]], self.text)

    def as_webarena(self, goal: Goal, task_id: int, template_id: int) -> dict[str, Any]:
        """The instantiation as WebArena's task files have it."""
        return {
            "sites": list(self.sites),
            "task_id": task_id,
            "require_login": not self.signed_out,
            "storage_state": None,
            "start_url": " |AND| ".join(self.start),
            "geolocation": None,
            "intent_template": self.text,
            "instantiation_dict": dict(goal.values),
            "intent": self.wording(goal),
            "require_reset": False,
            "eval": dict(goal.rule),
            "intent_template_id": template_id,
        }


class Chapter:
    """The templates of one site, or of several together, in the order they are written."""

    def __init__(self, *sites: str, start: tuple[str, ...]) -> None:
        self.sites = sites
        self.start = start
        self.intents: list[Intent] = []

    def intent(
        self, name: str, text: str, *, start: tuple[str, ...] = (), held_out: bool = False, signed_out: bool = False
    ) -> Callable[[Goals], Goals]:
        """Registers a function that yields goals as a template; the more different ones it can yield, the better."""

        def register(goals: Goals) -> Goals:
            self.intents.append(Intent(name, text, goals, self.sites, start or self.start, held_out, signed_out))
            return goals

        return register


# ---- rules -----------------------------------------------------------------------------------------------------------
def answer(text: str) -> dict[str, Any]:
    """The agent's answer must be this text; letter case does not count."""
    return {
        "eval_types": ["string_match"],
        "reference_answers": {"exact_match": text},
        "reference_url": "",
        "program_html": [],
    }


def not_possible() -> dict[str, Any]:
    """The agent must say that it cannot be done."""
    return answer(NOT_POSSIBLE)


def stops_at(url: str) -> dict[str, Any]:
    """The agent must end on this page. Its address is looked for within the agent's, so it must begin no other."""
    return {
        "eval_types": ["url_match"],
        "reference_answers": None,
        "reference_url": url,
        "program_html": [],
        "url_note": "GOLD in PRED",
    }


def shows(*looks: tuple[str, str, str]) -> dict[str, Any]:
    """Each page must show this text at its locator: (address, JavaScript that begins with `document`, text)."""
    return {
        "eval_types": ["program_html"],
        "reference_answers": None,
        "reference_url": "",
        "program_html": [
            {"url": url, "locator": locator, "required_contents": {"exact_match": text}} for url, locator, text in looks
        ],
    }


def also(*rules: Mapping[str, Any]) -> dict[str, Any]:
    """All of the rules; at most one answer and one address among them."""
    whole: dict[str, Any] = {
        "eval_types": [],
        "reference_answers": None,
        "reference_url": "",
        "program_html": [],
        "url_note": "GOLD in PRED",
    }
    for rule in rules:
        whole["eval_types"] += rule["eval_types"]
        whole["program_html"] += rule["program_html"]
        whole["reference_answers"] = whole["reference_answers"] or rule["reference_answers"]
        whole["reference_url"] = whole["reference_url"] or rule["reference_url"]
    return whole


def texts_of(selector: str) -> str:
    """A locator: the texts of all elements that a selector finds, in order, between semicolons."""
    return f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText.trim()).join('; ')"
