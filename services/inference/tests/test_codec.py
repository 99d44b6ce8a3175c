"""Conversations as bytes."""

from __future__ import annotations

import pytest
from webagent_inference.codec import BYTE_VOCABULARY, ByteCodec, ChatMessage
from webagent_runtime.errors import ServiceError


def test_a_prompt_of_bytes_reads_back_as_its_conversation() -> None:
    codec = ByteCodec("model")
    messages = [
        ChatMessage("system", "Be <brief>."),
        ChatMessage("user", "Zoë?"),
        ChatMessage("assistant", codec.reply("Ja.")),
        ChatMessage("user", "Why?"),
    ]
    ids = codec.prompt(messages)
    assert max(ids) < BYTE_VOCABULARY
    back, said = codec.conversation([*ids, *b"Bec"])
    assert [(message.role, message.content) for message in back] == [
        ("system", "Be <brief>."),
        ("user", "Zoë?"),
        ("assistant", "Ja."),
        ("user", "Why?"),
    ]
    assert bytes(said) == b"Bec"


def test_token_ids_that_are_no_prompt_are_refused() -> None:
    codec = ByteCodec("model")
    for ids in ([], list(b"words"), codec.prompt([ChatMessage("user", "x")])[:-1]):
        with pytest.raises(ServiceError) as refused:
            codec.conversation(ids)
        assert refused.value.reason == "INVALID_REQUEST"
