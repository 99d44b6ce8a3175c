"""Composes the conversation that a policy is shown.

What always holds: the newest page stands in full in the last message; every past reply is there, as the token ids that
were sampled; a past page stands in full or, under dynamic context compression, as its layout's stand-in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from webagent.env.v1.env_pb2 import Observation
from webagent.inference.v1.inference_pb2 import (
    FINISH_REASON_LENGTH,
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_USER,
    Message,
    TokenIds,
)
from webagent.trajectory.v1.trajectory_pb2 import Turn

MAX_NOTICE_CHARACTERS = 200
INSTRUCTION = "{instruction}"


@dataclass(frozen=True)
class Layout:
    """How a prompt words its user messages. Placeholders: {instruction}, {round}, {page}.

    `first_stand_in`: what the first page is replaced by, where that differs. `ends`: whether past replies keep their
    end token.
    """

    first: str
    later: str
    stand_in: str
    first_stand_in: str = ""
    ends: bool = True


@dataclass(frozen=True)
class Page:
    """What the user says in one round: the page, and what became of the action before it if that went wrong."""

    text: str
    notice: str = ""


LAYOUTS = {
    "compact": Layout(first="{instruction}\n{page}", later="{page}", stand_in="(page)"),
    "sites": Layout(first="{instruction}\n{page}", later="{page}", stand_in="(page)"),
    "webarena": Layout(
        first="Task Instruction: {instruction}\n\nRound {round}\n\n{page}",
        later="Round {round}\n\n{page}",
        stand_in="** Simplified html **",
    ),
    # What WebRL's published checkpoints were trained on. Its frame of rounds and control tokens is a chat template,
    # prompts/webrl.jinja, that the model's directory must have.
    "webrl": Layout(
        first="{page}", later="{page}", stand_in="** Simplified html **", first_stand_in="{instruction}", ends=False
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
    stand_in = layout.stand_in
    first_stand_in = layout.first_stand_in.replace(INSTRUCTION, instruction) or stand_in
    system = system_text(prompt, thinking=thinking).replace(INSTRUCTION, instruction)
    messages = [Message(role=ROLE_SYSTEM, text=system)]
    for index, page in enumerate(pages):
        text = (stand_in if index else first_stand_in) if compress and index < newest else page.text
        wording = layout.later if index else layout.first
        said = wording.format(instruction=instruction, round=index, page=text)
        messages.append(Message(role=ROLE_USER, text=f"{page.notice}\n{said}" if page.notice else said))
        if index < newest:
            messages.append(Message(role=ROLE_ASSISTANT, token_ids=TokenIds(ids=replies[index])))
    return messages


def past_reply(prompt: str, turn: Turn) -> list[int]:
    """A reply as the prompt's layout has it in later rounds: as it was sampled, to its end or up to it."""
    ids = list(turn.reply_token_ids)
    ended = turn.finish_reason != FINISH_REASON_LENGTH
    return ids[:-1] if ended and not LAYOUTS[prompt].ends else ids


def has_form(prompt: str, *, thinking: bool) -> bool:
    """Whether there is such a prompt, and in that form."""
    return prompt in LAYOUTS and _file(prompt, thinking=thinking).is_file()


@cache
def system_text(prompt: str, *, thinking: bool) -> str:
    """Returns the system message that the prompt ships as a text file."""
    return _file(prompt, thinking=thinking).read_text(encoding="utf-8").strip()


def _file(prompt: str, *, thinking: bool) -> Traversable:
    return files("webagent_rollout") / "prompts" / (f"{prompt}_thinking.txt" if thinking else f"{prompt}.txt")


def page_of(observation: Observation, problem: str = "") -> Page:
    """Puts what env observed into words; `problem` says what went wrong with the action that led here."""
    text = observation.text or "(empty page)"
    if len(observation.tabs) > 1:
        tabs = (f"{i}: {tab.title}{' (shown)' if tab.active else ''}" for i, tab in enumerate(observation.tabs))
        text = f"Tabs: {'; '.join(tabs)}\n{text}"
    line = " ".join(problem.split())[:MAX_NOTICE_CHARACTERS]
    return Page(text=text, notice=f"Last action failed: {line}" if line else "")
