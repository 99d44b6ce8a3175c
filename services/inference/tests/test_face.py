"""The OpenAI-compatible face, used by OpenAI's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOX = "The fox sang of Zoë's cake. " * 2
SCRIPT = {"rules": [{"pattern": "story", "replies": [FOX]}, {"pattern": "long", "replies": ["ab" * 3000]}]}


def user(text: str) -> list[Any]:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scripted(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.yaml"
    tokens.write_text("good: [inference]\nother: [env]\n")
    script = {**SCRIPT, "token_seconds": 0.001}
    face = {"port": 0, "tokens_file": str(tokens)}
    limits = {"max_requests": 2}
    async with serve(backend="scripted", model={"id": "policy"}, script=script, face=face, limits=limits) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(scripted: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=scripted.replica.face_url, api_key="good", max_retries=0) as client:
        yield client


async def test_the_model_is_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["policy"]
    assert (await client.models.retrieve("policy")).id == "policy"


async def test_a_reply_comes_whole(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="policy",
        messages=user("A story."),
        temperature=0,
        logprobs=True,
        extra_body={"return_token_ids": True},
    )
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == (FOX, "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(FOX.encode()) + 1
    assert choice.model_extra is not None
    assert bytes(choice.model_extra["token_ids"][:-1]).decode() == FOX
    assert choice.model_extra["weights_spans"] == [
        {"start": 0, "end": answer.usage.completion_tokens, "weights_version": 0}
    ]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [entry.logprob for entry in choice.logprobs.content] == [0.0] * answer.usage.completion_tokens


@pytest.mark.parametrize(
    ("settings", "text", "finish"),
    [
        ({}, FOX, "stop"),
        ({"max_tokens": 7}, FOX[:7], "length"),
        ({"max_completion_tokens": 7}, FOX[:7], "length"),
        ({"stop": "Zoë"}, "The fox sang of ", "stop"),
        ({"stop": ["cake.", "'s"]}, "The fox sang of Zoë", "stop"),
    ],
)
async def test_a_stream_and_a_whole_reply_are_one_text(
    client: openai.AsyncOpenAI, settings: dict[str, Any], text: str, finish: str
) -> None:
    whole = await client.chat.completions.create(model="policy", messages=user("A story."), **settings)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (text, finish)
    stream = await client.chat.completions.create(
        model="policy", messages=user("A story."), stream=True, stream_options={"include_usage": True}, **settings
    )
    chunks = [chunk async for chunk in stream]
    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 3
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == finish
    assert whole.usage is not None
    assert chunks[-1].usage == whole.usage


async def test_parts_of_text_are_one_message(client: openai.AsyncOpenAI) -> None:
    parts: list[Any] = [{"type": "text", "text": "A sto"}, {"type": "text", "text": "ry."}]
    answer = await client.chat.completions.create(model="policy", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == FOX


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 2}, "n:"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"temperature": 0.001}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "user message"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "content"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    client: openai.AsyncOpenAI, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        await client.chat.completions.create(**{"model": "policy", "messages": user("A story."), **fields})


async def test_another_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="policy"):
        await client.chat.completions.create(model="gpt", messages=user("A story."))


async def test_a_token_and_its_scope_are_needed(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.PermissionDeniedError):
        await client.with_options(api_key="other").models.list()


async def test_a_full_queue_is_said_with_advice_even_to_a_stream(client: openai.AsyncOpenAI, scripted: Served) -> None:
    asked = {"model": "policy", "messages": user("A long one."), "stream": True}
    streams: list[Any] = [await client.chat.completions.create(**asked) for _ in range(2)]
    with pytest.raises(openai.RateLimitError) as refused:
        await client.chat.completions.create(**asked)
    assert refused.value.response.headers["Retry-After"] == "1"
    for stream in streams:
        await stream.close()
    # Hung up on, both end at once and leave their places.
    async with asyncio.timeout(2):
        while scripted.replica.core.policy.requests:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.01)
    answer = await client.chat.completions.create(model="policy", messages=user("Hello."))
    assert answer.choices[0].message.content == "OK."


async def test_a_stream_that_is_left_half_way_is_ended(client: openai.AsyncOpenAI, scripted: Served) -> None:
    stream: Any = await client.chat.completions.create(model="policy", messages=user("A long one."), stream=True)
    async with aclosing(stream.__aiter__()) as chunks:
        async for _ in chunks:
            break
    await stream.close()
    async with asyncio.timeout(2):
        while scripted.replica.core.policy.requests:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.01)


async def test_a_taken_port_is_named(serve: Callable[..., Any], scripted: Served, tmp_path: Path) -> None:
    port = int(scripted.replica.face_url.split(":")[2].split("/")[0])
    with pytest.raises(Exception, match=rf"face.port {port}"):
        async with serve(backend="scripted", face={"port": port}):
            pass
