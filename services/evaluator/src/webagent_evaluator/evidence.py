"""What a verdict was reached on: read and asked once, and found again in a stored verdict."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from webagent_evaluator.judge import Exchange, Judge, Question, agrees
from webagent_evaluator.locators import Query, Reading
from webagent_evaluator.verdicts import NoVerdictError


@dataclass
class Evidence:
    """Everything that was read and asked."""

    final_url: str | None = None
    readings: dict[Query, Reading] = field(default_factory=dict)
    exchanges: dict[Question, Exchange] = field(default_factory=dict)


def parse(value: str | bytes) -> object:
    """What a page gave as JSON; ValueError if it is none.

    Half a character, which JavaScript lets pass for text and no message can hold, becomes a question mark.
    """
    whole = json.dumps(json.loads(value), ensure_ascii=False).encode(errors="replace")
    return json.loads(whole)


class Pages(Protocol):
    """What a rule may read."""

    async def final_url(self) -> str:
        """Address of the page that the agent ended on."""

    async def read(self, query: Query) -> Reading:
        """What the query asks for."""


class StoredPages:
    """Finds again what was read."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    async def final_url(self) -> str:
        """Address of the page that the agent ended on."""
        if self._evidence.final_url is None:
            raise NoVerdictError("NO_EVIDENCE", "the evidence does not hold the address that the agent ended on")
        return self._evidence.final_url

    async def read(self, query: Query) -> Reading:
        """What the query asks for."""
        try:
            return self._evidence.readings[query]
        except KeyError:
            where = query.url or "the agent's page"
            what = query.locator or "the whole page"
            raise NoVerdictError("NO_EVIDENCE", f"the evidence does not hold {what} of {where}") from None


class RecordedJudge:
    """Finds a reply again, or asks and keeps it; a reply that says nothing is neither found nor kept.

    Asking ends at `deadline` of the event loop's clock.
    """

    def __init__(self, evidence: Evidence, judge: Judge, deadline: float) -> None:
        self._evidence = evidence
        self._judge = judge
        self._deadline = deadline

    async def ask(self, question: Question, intent: str) -> Exchange:
        """The exchange about a question."""
        kept = self._evidence.exchanges.get(question)
        if kept is not None:
            with suppress(NoVerdictError):
                agrees(question, kept.reply)
                return kept
        try:
            async with asyncio.timeout_at(self._deadline):
                exchange = await self._judge.ask(question, intent)
        except TimeoutError as error:
            raise NoVerdictError("JUDGE_UNAVAILABLE", "the judge gave no reply in the evaluation's time") from error
        agrees(question, exchange.reply)
        self._evidence.exchanges[question] = exchange
        return exchange
