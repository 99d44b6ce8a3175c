"""Policies behind OpenAI-compatible endpoints: what is taken from them, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from aiohttp import web
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference.backend import Finish, Sampling
from webagent_inference.codec import END, ByteCodec
from webagent_inference.conformance.__main__ import examine
from webagent_inference.openai_backend import parse
from webagent_runtime.config import ClientConfig, ConfigError
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODEC = ByteCodec("model")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(serve: Callable[..., Any]) -> AsyncIterator[Served]:
    """An endpoint of text: another replica's own face."""
    script = {"rules": [{"pattern": "slow", "replies": ["ab" * 400]}], "replies": ["The cake."], "token_seconds": 0.001}
    async with serve(backend="scripted", model={"id": "far"}, script=script, face={"port": 0}) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def near(serve: Callable[..., Any], endpoint: Served) -> AsyncIterator[Served]:
    async with serve(backend="openai", openai={"base_url": endpoint.replica.face_url}) as served:
        yield served


async def ask(served: Served, *turns: str, **settings: Any) -> pb.GenerateResponse:
    roles = (pb.ROLE_USER, pb.ROLE_ASSISTANT)
    messages = [pb.Message(role=roles[index % 2], text=text) for index, text in enumerate(turns)]
    rendered = await served.policy.Render(pb.RenderRequest(messages=messages), timeout=10)
    return await served.generate(list(rendered.prompt_token_ids), **settings)


async def test_an_endpoint_of_text_keeps_what_it_can_of_the_contract(near: Served) -> None:
    replica = near.replica
    results = await examine(replica.server.address, replica.admin.address, ClientConfig(), 20.0)
    assert [(text, why) for text, verdict, why in results if verdict == "BROKEN"] == []
    assert {why for _, verdict, why in results if verdict == "cannot"} == {
        "lacks CAPABILITY_REPEATABLE",
        "lacks CAPABILITY_SCORE, CAPABILITY_LOGPROBS",
        "lacks CAPABILITY_TOKEN_IDS, CAPABILITY_REPEATABLE",
    }


async def test_its_replies_say_that_they_are_degraded(near: Served) -> None:
    reply = await ask(near, "Hi.", "Yes?", "Where is it?")
    assert (reply.text, reply.degraded) == ("The cake.", "the endpoint gives no token ids")
    assert (list(reply.logprobs), reply.logprob_kind) == ([], pb.LOGPROB_KIND_UNSPECIFIED)
    assert reply.finish_reason == pb.FINISH_REASON_STOP
    assert (await ask(near, "slow", max_tokens=5)).finish_reason == pb.FINISH_REASON_LENGTH
    assert (await ask(near, "Hi.", stop=["cake"])).text == "The "


async def test_a_reply_that_was_held_up_is_asked_for_again(near: Served, endpoint: Served) -> None:
    call = asyncio.create_task(ask(near, "slow", max_tokens=4096))
    async with asyncio.timeout(5):
        while not endpoint.replica.core.policy.requests:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.005)
    await near.admin.Pause(pb.PauseRequest(), timeout=10)
    async with asyncio.timeout(5):
        while endpoint.replica.core.policy.requests:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.005)
    await near.admin.Resume(pb.ResumeRequest(), timeout=10)
    assert (await call).text == "ab" * 400


async def test_new_weights_and_queues_are_not_for_endpoints(near: Served, serve: Callable[..., Any]) -> None:
    request = pb.UpdateWeightsRequest(version=1, uri="/x", manifest_digest="0" * 64)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await near.admin.UpdateWeights(request, timeout=10)
    assert from_rpc(refused.value).reason == "UNSUPPORTED"
    with pytest.raises(ConfigError, match="cannot follow a queue"):
        serve(backend="openai", queue={"url": "nats://127.0.0.1:1"})


class Moody:
    """An endpoint that answers what it is told to."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.text = ""
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        return web.Response(status=self.status, text=self.text, headers=self.headers)


@pytest_asyncio.fixture(loop_scope="module")
async def moody() -> AsyncIterator[tuple[Moody, str]]:
    endpoint = Moody()
    application = web.Application()
    application.router.add_post("/v1/chat/completions", endpoint.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield endpoint, f"http://127.0.0.1:{runner.addresses[0][1]}/v1/"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "text", "code", "reason", "advice"),
    [
        (429, "slow down", grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 7.0),
        (503, "overloaded", grpc.StatusCode.UNAVAILABLE, "UPSTREAM_FAILED", 7.0),
        (401, "no such key", grpc.StatusCode.FAILED_PRECONDITION, "UPSTREAM_REFUSED", None),
        (200, "<html>", grpc.StatusCode.UNAVAILABLE, "UPSTREAM_FAILED", 2.0),
        (200, '{"choices": []}', grpc.StatusCode.UNAVAILABLE, "UPSTREAM_FAILED", 2.0),
    ],
)
async def test_what_the_endpoint_says_no_to_is_said_with_its_advice(
    serve: Callable[..., Any],
    moody: tuple[Moody, str],
    status: int,
    text: str,
    code: grpc.StatusCode,
    reason: str,
    advice: float | None,
) -> None:
    endpoint, url = moody
    endpoint.status, endpoint.text, endpoint.headers = status, text, {"Retry-After": "7"}
    async with serve(backend="openai", openai={"base_url": url, "model": "m"}) as served:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(served, "Hi.")
    error = from_rpc(refused.value)
    assert (error.code, error.reason, error.retry_after) == (code, reason, advice)


async def test_the_fields_that_are_sent_can_be_fitted_to_the_endpoint(
    serve: Callable[..., Any], moody: tuple[Moody, str]
) -> None:
    endpoint, url = moody
    endpoint.text = '{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}'
    fitted = {
        "base_url": url,
        "model": "m",
        "omit": ["temperature"],
        "extra": {"reasoning_effort": "low"},
        "tokens_field": "max_completion_tokens",
    }
    async with serve(backend="openai", openai=fitted) as served:
        reply = await ask(served, "Hi.", max_tokens=9, seed=1 << 40, top_p=0.5)
    assert endpoint.bodies == [
        {
            "model": "m",
            "max_completion_tokens": 9,
            "top_p": 0.5,
            "seed": 0,
            "messages": [{"role": "user", "content": "Hi."}],
            "reasoning_effort": "low",
        }
    ]
    assert (reply.text, list(reply.token_ids)) == ("", [END])


async def test_a_key_that_is_renewed_is_shown_from_then_on(
    serve: Callable[..., Any], moody: tuple[Moody, str], tmp_path: Path
) -> None:
    endpoint, url = moody
    endpoint.text = '{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}'
    key = tmp_path / "key"
    key.write_text("first\n")
    async with serve(backend="openai", openai={"base_url": url, "model": "m", "api_key_file": str(key)}) as served:
        await ask(served, "Hi.")
        key.write_text("second one\n")
        await ask(served, "Hi.")
    assert endpoint.keys == ["Bearer first", "Bearer second one"]


async def test_an_endpoint_that_cannot_be_reached_at_start_is_named(serve: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be reached"):
        async with serve(backend="openai", openai={"base_url": "http://127.0.0.1:1/v1"}):
            pass


VLLM = {"text": "Hi", "token_ids": [72, 105, END], "logprobs": {"token_logprobs": [-0.5, -0.25, -1.0]}}
LLAMA = {
    "text": "Hi",
    "logprobs": {"content": [{"id": 72, "logprob": -0.5}, {"id": 105, "logprob": -0.25}, {"id": END, "logprob": -1.0}]},
}


@pytest.mark.parametrize("choice", [VLLM, LLAMA])
async def test_token_ids_and_logprobs_are_taken_where_they_are_given(choice: dict[str, Any]) -> None:
    usage = {"prompt_tokens_details": {"cached_tokens": 32}}
    answer = {"choices": [{**choice, "finish_reason": "stop"}], "usage": usage}
    sample = parse(answer, CODEC, Sampling(temperature=1.0, max_tokens=5))
    assert (sample.token_ids, sample.logprobs) == ([72, 105, END], [-0.5, -0.25, -1.0])
    assert (sample.finish, sample.cached_tokens, sample.degraded) == (Finish.STOP, 32, "")


@pytest.mark.parametrize(
    ("change", "finish", "temperature", "why"),
    [
        ({"token_ids": None}, "stop", 1.0, "no token ids"),
        ({"token_ids": [72, 105]}, "stop", 1.0, "leaves out the token that ended"),
        ({"token_ids": [72, 105, 5000]}, "length", 1.0, "another model's"),
        ({"logprobs": None}, "stop", 1.0, "no log-probability"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, "stop", 1.0, "no log-probability"),
        ({}, "stop", 0.7, "before or after temperature"),
    ],
)
async def test_a_reply_that_lacks_something_says_what(
    change: dict[str, Any], finish: str, temperature: float, why: str
) -> None:
    answer = {"choices": [{**VLLM, **change, "finish_reason": finish}]}
    sample = parse(answer, CODEC, Sampling(temperature=temperature, max_tokens=5))
    assert why in sample.degraded
    assert sample.logprobs == []
    assert bytes(token for token in sample.token_ids if token < END)[:2] == b"Hi"
