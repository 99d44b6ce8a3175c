"""Who words the reasoning of a demonstrated action: any OpenAI-compatible endpoint, or a template that needs none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol

from webagent_runtime.chat import Chat

from webagent_rollout.endpoint import model_at

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


@dataclass(frozen=True)
class Move:
    """A demonstrated action and what led to it."""

    instruction: str
    history: Sequence[str]
    page: str
    action: str

    @property
    def remarks(self) -> list[str]:
        """The comment lines that stand before the action."""
        lines = (line.strip() for line in self.action.splitlines())
        return [line.lstrip("# ") for line in lines if line.startswith("#")]


class Thinker(Protocol):
    """Words reasonings."""

    async def think(self, move: Move) -> str:
        """The reasoning that leads to the move."""


class Template:
    """The same words for the same move, and no network."""

    async def think(self, move: Move) -> str:
        """See Thinker."""
        done = (
            f"I have taken {len(move.history)} of its steps, the last one {move.history[-1]}." if move.history else ""
        )
        remarks = " ".join(move.remarks)
        parts = (f"The task is: {move.instruction}", done, remarks, "This page has what the next step needs.")
        return " ".join(part for part in parts if part)


class Explainer:
    """An endpoint's words."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def think(self, move: Move) -> str:
        """See Thinker."""
        return await self._chat.ask(explain_prompt(move))


def thinker_of(endpoint: str | None, *, model: str) -> Thinker:
    """The endpoint's model, or the template where there is no endpoint."""
    return Explainer(model_at(endpoint, model)) if endpoint else Template()


def explain_prompt(move: Move) -> str:
    """What the endpoint is asked."""
    history = "\n".join(f"{number}. {action}" for number, action in enumerate(move.history, 1))
    return _prompt().format(
        instruction=move.instruction,
        history=history or "nothing yet",
        page=move.page,
        action=move.action,
        remarks="; ".join(move.remarks) or "none",
    )


def cleaned(thought: str) -> str:
    """The reasoning without the tags that frame replies, which would end it early."""
    for tag in _TAGS:
        thought = thought.replace(tag, " ")
    return " ".join(thought.split())


@cache
def _prompt() -> str:
    return (files("webagent_rollout") / "prompts" / "explain_action.txt").read_text(encoding="utf-8")
