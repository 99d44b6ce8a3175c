"""The conformance program: it passes a service that keeps the contract and catches one that does not."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference.conformance.__main__ import examine
from webagent_runtime.config import ClientConfig

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "letters.py"


@pytest.fixture
def letters() -> Any:
    spec = importlib.util.spec_from_file_location("letters", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest_asyncio.fixture
async def target(letters: Any) -> AsyncIterator[str]:
    server = await letters.served(0)
    yield server.address
    await server.stop(0)


async def broken(target: str) -> list[str]:
    results = await examine(target, None, ClientConfig(), 20.0)
    return [why for _, verdict, why in results if verdict == "BROKEN"]


async def test_the_example_passes(target: str) -> None:
    command = [sys.executable, "-m", "webagent_inference.conformance", "--target", target]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "cannot  administration pauses" in ended.stdout
    assert "BROKEN" not in ended.stdout


async def test_nothing_to_ask_is_exit_code_2() -> None:
    command = [sys.executable, "-m", "webagent_inference.conformance", "--target", "127.0.0.1:1", "--seconds", "1"]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda reply: reply.token_ids.pop(), "the spans end at"),
        (lambda reply: reply.logprobs.pop(), "not one log-probability for each token"),
        (lambda reply: reply.logprobs.__setitem__(0, 0.5), "a log-probability is none"),
        (lambda reply: reply.logprobs.__setitem__(0, -90.0), "scores differ"),
        (lambda reply: reply.token_ids.__setitem__(0, 100 + len(reply.logprobs)), "differ"),
        (lambda reply: setattr(reply.model, "template_hash", "another"), "names another model"),
        (lambda reply: setattr(reply, "finish_reason", pb.FINISH_REASON_UNSPECIFIED), "finish reason"),
        (lambda reply: reply.sampling.ClearField("seed"), "the seed is not echoed"),
    ],
)
async def test_a_reply_that_is_not_what_it_says_is_found_out(
    letters: Any, monkeypatch: pytest.MonkeyPatch, change: Any, found: str
) -> None:
    honest = letters.Letters.Generate

    async def dishonest(self: Any, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        reply: pb.GenerateResponse = await honest(self, request, context)
        if len(reply.token_ids) > 1:
            change(reply)
        return reply

    monkeypatch.setattr(letters.Letters, "Generate", dishonest)
    server = await letters.served(0)
    try:
        assert any(found in why for why in await broken(server.address))
    finally:
        await server.stop(0)


async def test_text_that_becomes_a_control_token_is_found_out(letters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = letters.Letters.Render

    async def naive(self: Any, request: pb.RenderRequest, context: Any) -> pb.RenderResponse:
        rendered: pb.RenderResponse = await honest(self, request, context)
        if any("</s>" in message.text for message in request.messages):
            rendered.prompt_token_ids.append(letters.END)
        return rendered

    monkeypatch.setattr(letters.Letters, "Render", naive)
    server = await letters.served(0)
    try:
        assert "</s> in a message became a control token" in await broken(server.address)
    finally:
        await server.stop(0)
