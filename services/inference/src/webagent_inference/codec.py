"""Between conversations and token ids: what the service needs of it, and a codec of bytes.

`Chat` is the codec of a model's own tokenizer and template. `ByteCodec` needs no model: a token is a byte of UTF-8 or
the mark of a turn, so a prompt can be read back as the conversation it came from. It serves policies that take and give
text: an endpoint whose tokenizer is not at hand, and scripted ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from webagent_inference.errors import invalid, unknown_token

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class ChatMessage:
    """One message: text, or the token ids of a past reply."""

    role: Role
    content: str | Sequence[int]


@dataclass(frozen=True)
class Identity:
    """Which model, tokenizer and template token ids belong to."""

    model_id: str
    tokenizer_hash: str
    template_hash: str


class Codec(Protocol):
    """Conversations to token ids and back. Safe to use from several threads."""

    @property
    def identity(self) -> Identity:
        """What token ids belong to."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Tokens that end a reply."""

    @property
    def vocab_size(self) -> int:
        """All token ids are below it."""

    def prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The prompt's token ids, up to and including what opens the assistant's turn."""

    def reply(self, text: str) -> list[int]:
        """Text as a model would have sampled it, the end token included."""

    def text(self, token_ids: Sequence[int]) -> str:
        """Tokens as text, special tokens left out."""


def check_messages(messages: Sequence[ChatMessage], vocab_size: int) -> None:
    """ServiceError unless these are a conversation that waits for the assistant."""
    if not messages or messages[-1].role != "user":
        raise invalid("messages must end with a user message")
    for index, message in enumerate(messages):
        if message.role == "system" and index > 0:
            raise invalid(f"messages[{index}]: only the first message may be the system's")
        if isinstance(message.content, str):
            continue
        if message.role != "assistant":
            raise invalid(f"messages[{index}]: token_ids belong to the assistant")
        for token in message.content:
            if not 0 <= token < vocab_size:
                raise unknown_token(token, vocab_size)


END = 256
_OPENING: dict[Role, int] = {"system": 257, "user": 258, "assistant": 259}
_ROLES: dict[int, Role] = {token: role for role, token in _OPENING.items()}
BYTE_VOCABULARY = 260


class ByteCodec:
    """Bytes and four marks: the ends of turns, and what opens each role's turn."""

    vocab_size = BYTE_VOCABULARY
    end_tokens = (END,)

    def __init__(self, model_id: str) -> None:
        self.identity = Identity(
            model_id=model_id,
            tokenizer_hash=hashlib.sha256(b"webagent byte codec 1").hexdigest(),
            template_hash=hashlib.sha256(b"role mark, bytes, end mark").hexdigest(),
        )

    def prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """See Codec."""
        check_messages(messages, self.vocab_size)
        ids: list[int] = []
        for message in messages:
            content = message.content.encode() if isinstance(message.content, str) else message.content
            ids += [_OPENING[message.role], *content]
            if ids[-1] != END:
                ids.append(END)
        return [*ids, _OPENING["assistant"]]

    def reply(self, text: str) -> list[int]:
        """See Codec."""
        return [*text.encode(), END]

    def text(self, token_ids: Sequence[int]) -> str:
        """See Codec."""
        return bytes(token for token in token_ids if token < END).decode(errors="replace")

    def conversation(self, prompt: Sequence[int]) -> tuple[list[ChatMessage], list[int]]:
        """The messages that a prompt was made of, and what the assistant has said since; INVALID_REQUEST if none."""
        turns: list[tuple[Role, list[int]]] = []
        for token in prompt:
            if token in _ROLES:
                turns.append((_ROLES[token], []))
            elif turns:
                turns[-1][1].append(token)
            else:
                raise invalid("the prompt does not begin with the mark of a turn; make prompts with Render")
        if not turns or turns[-1][0] != "assistant":
            raise invalid("the prompt does not open the assistant's turn; make prompts with Render")
        return [ChatMessage(role, self.text(ids)) for role, ids in turns[:-1]], turns[-1][1]
