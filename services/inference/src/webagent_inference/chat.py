"""Text to tokens and back: the only place where it happens.

A conversation is rendered by the model's chat template, with two guarantees:

- A past reply enters the prompt as the very token ids that were sampled. The template is rendered with a unique mark
  where the reply belongs, cut there, the pieces are tokenised, and the ids are put between them. An end token that the
  reply carries is not repeated, one that it lacks (it was cut off) is added by the template.
- Text never becomes a control token. Where the text of a message contains the spelling of one, a mark splits it, so
  that a hostile page cannot close its turn and open another.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webagent_runtime.config import ConfigError

from webagent_inference.codec import ChatMessage, Identity, check_messages
from webagent_inference.errors import invalid

# Llama's templates write a date into the prompt, some of them today's: a prompt must not depend on the day.
TEMPLATE_FACTS = {"date_string": "26 Jul 2024"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class Chat:
    """A tokenizer and its chat template, as a Codec."""

    def __init__(self, tokenizer: Any, identity: Identity, *, end_tokens: Sequence[int], vocab_size: int) -> None:
        self._tokenizer = tokenizer
        # Unlike its wrapper it changes no state while it encodes.
        self._backend = tokenizer.backend_tokenizer
        self.identity = identity
        self.end_tokens = tuple(end_tokens)
        self._end_set = frozenset(end_tokens)
        self.vocab_size = vocab_size
        # Added tokens that are not special, such as a model's <think>, are text that it writes itself.
        special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        controls = sorted(special, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls))) if controls else None

    @classmethod
    def load(cls, directory: Path, model_id: str) -> "Chat":
        """Reads the tokenizer of a model directory."""
        from transformers import AutoTokenizer, GenerationConfig  # noqa: PLC0415 - heavy; configs load without it

        tokenizer = AutoTokenizer.from_pretrained(str(directory))
        if not tokenizer.chat_template:
            raise ConfigError(f"model directory {directory} has no chat template; add a chat_template.jinja")
        ends: list[int] = [tokenizer.eos_token_id]
        if (directory / "generation_config.json").is_file():
            more = GenerationConfig.from_pretrained(str(directory)).eos_token_id
            ends += more if isinstance(more, list) else [] if more is None else [more]
        identity = Identity(
            model_id=model_id,
            tokenizer_hash=_hash_files(directory, TOKENIZER_FILES),
            template_hash=hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest(),
        )
        config = json.loads((directory / "config.json").read_text())
        # The model may have rows beyond the tokenizer's last token, and may sample them.
        vocab_size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or len(tokenizer)
        return cls(tokenizer, identity, end_tokens=list(dict.fromkeys(ends)), vocab_size=int(vocab_size))

    def prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """See Codec."""
        check_messages(messages, self.vocab_size)
        marks = _Marks()
        conversation = [{"role": each.role, "content": self._mark(each.content, marks)} for each in messages]
        text = self._render(conversation)
        pieces = marks.split(text)
        ids = self._encode(pieces[0])
        for splice, piece in zip(marks.splices, pieces[1:], strict=True):
            following = self._encode(piece)
            if splice and splice[-1] in self._end_set and following and following[0] in self._end_set:
                del following[0]
            ids += splice
            ids += following
        return ids

    def reply(self, text: str) -> list[int]:
        """See Codec."""
        marks = _Marks()
        ids: list[int] = []
        for piece in marks.split(self._mark(text, marks)):
            ids += self._encode(piece)
        return [*ids, self.end_tokens[0]]

    def text(self, token_ids: Sequence[int]) -> str:
        """See Codec."""
        decoded: str = self._backend.decode(list(token_ids), skip_special_tokens=True)
        return decoded

    def _render(self, conversation: Sequence[dict[str, str]]) -> str:
        from jinja2 import TemplateError  # noqa: PLC0415 - comes with transformers

        try:
            text: str = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, **TEMPLATE_FACTS
            )
        except TemplateError as error:
            raise invalid(f"the model's chat template refuses these messages: {error}") from error
        return text

    def _mark(self, content: str | Sequence[int], marks: "_Marks") -> str:
        if not isinstance(content, str):
            return marks.add(list(content))
        if self._controls is None:
            return content
        return self._controls.sub(lambda found: found[0][0] + marks.add([]) + found[0][1:], content)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids


class _Marks:
    """Places in a text where token ids go. The marks are letters and digits, so templates leave them alone."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(12)
        self.splices: list[list[int]] = []

    def add(self, ids: list[int]) -> str:
        self.splices.append(ids)
        return f"x{self._nonce}x{len(self.splices) - 1}x"

    def split(self, text: str) -> list[str]:
        parts = re.split(f"x{self._nonce}x([0-9]+)x", text)
        if parts[1::2] != [str(index) for index in range(len(self.splices))]:
            raise invalid("the model's chat template drops, repeats or reorders messages")
        return parts[::2]


def _hash_files(directory: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        content = (directory / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
