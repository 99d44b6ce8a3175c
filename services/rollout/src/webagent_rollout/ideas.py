"""New instructions from those that the policy fails at: by a template's slots, or by any OpenAI-compatible endpoint.

The template needs no network and says the same each time. The slots of an instruction are what stands in quotes, its
numbers, and names within it; an instruction changes in one slot, whose new value comes from an instruction that is
worded alike, or, for a quoted text that stands on the page, from another element of the same kind on that page.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Protocol

from webagent_runtime.chat import Chat

_QUOTED = r'"[^"\n]+"|“[^”\n]+”'
_NUMBER = r"(?<![\w.])\d[\d,./:]*(?<![,./:])"
# Words that begin with a capital, after a word that does not end a sentence.
_NAME = r"(?<=[a-z,] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*"
_SLOT = re.compile(f"{_QUOTED}|{_NUMBER}|{_NAME}")
_LINE = re.compile(r"^\s*(\d+)\s*[:.)]\s*(\S.*)$")
_LONGEST = 400
_PAGE_CHARACTERS = 2000
_TASKS_OF_A_PROMPT = 10
_IDEAS_OF_A_PROMPT = 10


@dataclass(frozen=True)
class Tried:
    """A task that was played: what was asked, and the page that it begins on."""

    task_id: str
    instruction: str
    url: str
    page: str


@dataclass(frozen=True)
class Idea:
    """A new instruction, for the page that `like` begins on."""

    instruction: str
    like: Tried


class Inventor(Protocol):
    """Who has the ideas."""

    async def invent(self, failed: Sequence[Tried], known: Sequence[Tried], wanted: int) -> list[Idea]:
        """Up to `wanted` new instructions like the failed ones; `known` are all that were played, these among them."""


def fresh(ideas: Sequence[Idea], known: Sequence[Tried]) -> list[Idea]:
    """The ideas that were not known, each once, short enough and on one line."""
    seen = {_folded(one.instruction) for one in known}
    kept = []
    for idea in ideas:
        key = _folded(idea.instruction)
        if key and key not in seen and len(idea.instruction) <= _LONGEST and "\n" not in idea.instruction:
            seen.add(key)
            kept.append(idea)
    return kept


def _folded(instruction: str) -> str:
    return " ".join(re.findall(r"\w+", instruction.casefold()))


class Template:
    """The same ideas for the same tasks, and no network."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def invent(self, failed: Sequence[Tried], known: Sequence[Tried], wanted: int) -> list[Idea]:
        """See Inventor. Each failed task in turn has one of its ideas taken, until there are enough or no more."""
        values: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for one in known:
            shape, slots = _parsed(one.instruction)
            for place, slot in enumerate(slots):
                values[shape, place][slot] += 1
        pools = {key: sorted(counted) for key, counted in values.items()}
        offers = [fresh(list(_changed(one, pools)), known) for one in failed]
        for number, of_one in enumerate(offers):
            Random(f"{self._seed} {failed[number].task_id}").shuffle(of_one)  # noqa: S311  nothing secret
        in_turn = [
            of_one[turn] for turn in range(max(map(len, offers), default=0)) for of_one in offers if turn < len(of_one)
        ]
        return fresh(in_turn, known)[:wanted]


def _parsed(instruction: str) -> tuple[str, list[str]]:
    """How an instruction is worded, and what fills its slots."""
    return _SLOT.sub("\0", instruction), _SLOT.findall(instruction)


def _changed(one: Tried, pools: dict[tuple[str, int], list[str]]) -> Iterator[Idea]:
    shape, slots = _parsed(one.instruction)
    for place, slot in enumerate(slots):
        for value in dict.fromkeys([*pools[shape, place], *_beside(slot, one.page)]):
            if value != slot:
                filled = iter([*slots[:place], value, *slots[place + 1 :]])
                yield Idea(re.sub("\0", lambda _: next(filled), shape), one)  # noqa: B023  used up at once


def _beside(slot: str, page: str) -> list[str]:
    """For a quoted text that is an element's on the page: the texts of the other elements of its kind, quoted alike."""
    if slot[0] not in '"“':
        return []
    elements = [(tag, html.unescape(text).strip()) for tag, text in re.findall(r"<(\w+)[^>]*>([^<>]+)<", page)]
    kinds = {tag for tag, text in elements if text == slot[1:-1]}
    return [f"{slot[0]}{text}{slot[-1]}" for tag, text in elements if tag in kinds and text and '"' not in text]


class Asked:
    """An endpoint's ideas, those of them that it finds feasible when asked about each by itself."""

    def __init__(self, chat: Chat, *, temperature: float = 1.0) -> None:
        self._chat = chat
        self._temperature = temperature

    async def invent(self, failed: Sequence[Tried], known: Sequence[Tried], wanted: int) -> list[Idea]:
        """See Inventor. Each prompt shows some of the failed tasks; after all were shown there are no more ideas."""
        found: list[Idea] = []
        for start in range(0, len(failed), _TASKS_OF_A_PROMPT):
            if len(found) >= wanted:
                break
            shown = failed[start : start + _TASKS_OF_A_PROMPT]
            asked = invention_prompt(shown, wanted=_IDEAS_OF_A_PROMPT)
            said = await self._chat.ask(asked, temperature=self._temperature)
            for idea in fresh([*found, *_read(said, shown)], known)[len(found) :]:
                if await self._feasible(idea):
                    found.append(idea)
        return found[:wanted]

    async def _feasible(self, idea: Idea) -> bool:
        prompt = _text("feasible_task").format(instruction=idea.instruction, page=idea.like.page[:_PAGE_CHARACTERS])
        return (await self._chat.ask(prompt)).strip().upper().startswith("YES")


def invention_prompt(shown: Sequence[Tried], *, wanted: int) -> str:
    """What the endpoint is asked."""
    tasks = "\n\n".join(
        f"{number}. {one.instruction}\nPage: {one.page[:_PAGE_CHARACTERS]}" for number, one in enumerate(shown, 1)
    )
    return _text("new_tasks").format(tasks=tasks, wanted=wanted, first=1)


def _read(said: str, shown: Sequence[Tried]) -> list[Idea]:
    lines = (_LINE.match(line) for line in said.splitlines())
    numbered = ((int(line[1]), line[2].strip()) for line in lines if line)
    return [Idea(text, shown[number - 1]) for number, text in numbered if 1 <= number <= len(shown)]


@cache
def _text(name: str) -> str:
    return (files("webagent_rollout") / "prompts" / f"{name}.txt").read_text(encoding="utf-8").strip()
