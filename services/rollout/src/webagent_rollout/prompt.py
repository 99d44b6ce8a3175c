"""Composes the conversation that a policy is shown.

What always holds: the newest page stands in full in the last message; every past reply is there, as the token ids that
were sampled; a past page stands in full or, under dynamic context compression, as its layout's stand-in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from webagent.env.v1.env_pb2 import Observation
from webagent.inference.v1.inference_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER, Message, TokenIds

MAX_NOTICE_CHARACTERS = 200


@dataclass(frozen=True)
class Layout:
    """How a prompt words its user messages. Placeholders: {instruction}, {round}, {page}."""

    first: str
    later: str
    stand_in: str


@dataclass(frozen=True)
class Page:
    """What the user says in one round: the page, and what became of the action before it if that went wrong."""

    text: str
    notice: str = ""


LAYOUTS = {
    "compact": Layout(first="{instruction}\n{page}", later="{page}", stand_in="(page)"),
    "webarena": Layout(
        first="Task Instruction: {instruction}\n\nRound {round}\n\n{page}",
        later="Round {round}\n\n{page}",
        stand_in="** Simplified html **",
    ),
}


def compose(
    prompt: str,
    *,
    thinking: bool,
    compress: bool,
    instruction: str,
    pages: Sequence[Page],
    replies: Sequence[Sequence[int]],
) -> list[Message]:
    """Returns the messages of the round that `pages` ends with; there is one reply for each page before it."""
    layout = LAYOUTS[prompt]
    newest = len(pages) - 1
    messages = [Message(role=ROLE_SYSTEM, text=system_text(prompt, thinking=thinking))]
    for index, page in enumerate(pages):
        text = layout.stand_in if compress and index < newest else page.text
        wording = layout.later if index else layout.first
        said = wording.format(instruction=instruction, round=index, page=text)
        messages.append(Message(role=ROLE_USER, text=f"{page.notice}\n{said}" if page.notice else said))
        if index < newest:
            messages.append(Message(role=ROLE_ASSISTANT, token_ids=TokenIds(ids=replies[index])))
    return messages


@cache
def system_text(prompt: str, *, thinking: bool) -> str:
    """Returns the system message that the prompt ships as a text file."""
    name = f"{prompt}_thinking.txt" if thinking else f"{prompt}.txt"
    return (files("webagent_rollout") / "prompts" / name).read_text(encoding="utf-8").strip()


def page_of(observation: Observation, problem: str = "") -> Page:
    """Puts what env observed into words; `problem` says what went wrong with the action that led here."""
    text = observation.text or "(empty page)"
    if len(observation.tabs) > 1:
        tabs = (f"{i}: {tab.title}{' (shown)' if tab.active else ''}" for i, tab in enumerate(observation.tabs))
        text = f"Tabs: {'; '.join(tabs)}\n{text}"
    line = " ".join(problem.split())[:MAX_NOTICE_CHARACTERS]
    return Page(text=text, notice=f"Last action failed: {line}" if line else "")
