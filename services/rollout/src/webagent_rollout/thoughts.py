"""Who words the reasoning of a demonstrated action: any OpenAI-compatible endpoint, or a template that needs none."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol

KEY_VARIABLE = "WEBAGENT_ENDPOINT_KEY"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


class EndpointError(Exception):
    """The endpoint did not answer as it should."""


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


class Endpoint:
    """A chat endpoint that speaks OpenAI's protocol, such as http://127.0.0.1:8000/v1; the environment has its key."""

    def __init__(
        self, url: str, *, model: str, seconds: float = 120.0, max_tokens: int = 512, attempts: int = 3
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._model = model
        self._seconds = seconds
        self._max_tokens = max_tokens
        self._attempts = attempts

    async def think(self, move: Move) -> str:
        """See Thinker."""
        return await asyncio.to_thread(self._ask, explain_prompt(move))

    def _ask(self, prompt: str) -> str:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0.0,
            "max_tokens": self._max_tokens,
        }
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310  the user's own
        failure: Exception | None = None
        for _ in range(self._attempts):
            try:
                with urllib.request.urlopen(request, timeout=self._seconds) as answer:  # noqa: S310
                    return str(json.loads(answer.read())["choices"][0]["message"]["content"])
            except (urllib.error.URLError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
                failure = error
        raise EndpointError(f"{self._url} did not answer in {self._attempts} attempts: {failure}") from failure


def thinker_of(endpoint: str | None, *, model: str) -> Thinker:
    """The endpoint's model, or the template where there is no endpoint."""
    return Endpoint(endpoint, model=model) if endpoint else Template()


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
