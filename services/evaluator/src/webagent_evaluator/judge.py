"""Questions that only a judge can answer, and what its replies mean.

A judge is a language model. Its reply must hold one of the words that it was asked for; any other reply is no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from webagent_evaluator.verdicts import NoVerdictError


class Kind(Enum):
    """What is asked."""

    FUZZY = "fuzzy"
    UNACHIEVABLE = "unachievable"


@dataclass(frozen=True)
class Question:
    """Whether an answer means what the reference means."""

    kind: Kind
    reference: str
    answer: str


@dataclass(frozen=True)
class Exchange:
    """A question as it was put, and the reply to it."""

    prompt: str
    reply: str
    model: str


class Judge(Protocol):
    """Whoever answers questions."""

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Puts the question about a task's intent; NoVerdictError if no reply can be had."""


class NoJudge:
    """Nobody to ask."""

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Says so."""
        raise NoVerdictError("JUDGE_NOT_CONFIGURED", "the rule needs a judge, and none is configured")


_FUZZY = """\
You are grading homework. Decide whether the student's answer to the question means the same as the reference answer; \
the wording may differ.
Question: {intent}
Reference answer: {reference}
Student's answer: {answer}
"N/A", wherever it stands, means that the task cannot be done.
Reply with exactly one of: correct, incorrect, partially correct."""
_UNACHIEVABLE = """\
A task cannot be done. Somebody tried it, gave up and reported why. Decide whether the reported reason is, at least by \
implication, the actual one.
Task: {intent}
Actual reason: {reference}
Reported reason: {answer}
Reply with exactly one of: same, different."""


def prompt_of(question: Question, intent: str) -> str:
    """The question in words."""
    template = _FUZZY if question.kind is Kind.FUZZY else _UNACHIEVABLE
    return template.format(intent=intent, reference=question.reference, answer=question.answer)


def agrees(question: Question, reply: str) -> bool:
    """What a reply says once its thoughts are over."""
    words = reply.rpartition("</think>")[2].lower()
    if "<think>" in words:
        raise NoVerdictError("JUDGE_REPLY_MALFORMED", f"the judge did not finish thinking: {reply[:80]!r}")
    no, yes = (
        (("partially correct", "incorrect"), "correct") if question.kind is Kind.FUZZY else (("different",), "same")
    )
    if any(word in words for word in no):
        return False
    if yes in words:
        return True
    raise NoVerdictError("JUDGE_REPLY_MALFORMED", f"the judge replied {reply[:80]!r}")
