"""A policy on a vLLM elsewhere: its contract, spoken by a server of a small model as vLLM speaks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference import core as core_module
from webagent_inference.backend import Sampling
from webagent_inference.codec import BYTE_VOCABULARY, ByteCodec
from webagent_inference.conformance.__main__ import examine
from webagent_inference.testing import FILE, PROMPT, Bigrams, weights
from webagent_runtime.config import ClientConfig, ConfigError
from webagent_runtime.errors import from_rpc

pytest.importorskip("smg_grpc_proto")
from smg_grpc_proto import vllm_engine_pb2 as vllm
from smg_grpc_proto import vllm_engine_pb2_grpc

if TYPE_CHECKING:
    from conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Engine(vllm_engine_pb2_grpc.VllmEngineServicer):
    """As vLLM's own servicer: each chunk holds new tokens, and the message that ends a stream repeats the last ones."""

    def __init__(self, model: Bigrams) -> None:
        self.model = model
        self.vocab_size = BYTE_VOCABULARY
        self.running = 0

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        return vllm.GetModelInfoResponse(model_path="far", vocab_size=self.vocab_size)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        asked, prompt = request.sampling_params, list(request.tokenized.input_ids)
        if asked.HasField("prompt_logprobs"):
            scores = await self.model.score(prompt[:1], prompt[1:])
            entries = [vllm.InputTokenLogProb(), *(vllm.InputTokenLogProb(value=score) for score in scores)]
            given = vllm.InputLogProbs(token_logprobs=entries, token_ids=prompt)
            yield vllm.GenerateResponse(complete=vllm.GenerateComplete(finish_reason="length", input_logprobs=given))
            return
        queue: asyncio.Queue[Any] = asyncio.Queue()
        sampling = Sampling(
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
            top_p=asked.top_p,
            seed=asked.seed if asked.HasField("seed") else None,
        )
        work = asyncio.create_task(
            self.model.generate("", prompt, sampling, lambda ids, scores: queue.put_nowait((ids, scores)))
        )
        work.add_done_callback(lambda _: queue.put_nowait(None))
        self.running += 1
        try:
            last: dict[str, Any] = {}
            while (item := await queue.get()) is not None:
                ids, scores = item
                logprobs = vllm.OutputLogProbs(token_logprobs=scores, token_ids=ids)
                last = {"output_logprobs": logprobs}
                yield vllm.GenerateResponse(chunk=vllm.GenerateStreamChunk(token_ids=ids, cached_tokens=3, **last))
            complete = vllm.GenerateComplete(output_ids=ids, finish_reason="length", cached_tokens=3, **last)
            yield vllm.GenerateResponse(complete=complete)
        finally:
            self.running -= 1
            work.cancel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Engine, str]]:
    directory = tmp_path_factory.mktemp("far")
    (directory / FILE).write_bytes(weights(0))
    server = grpc.aio.server()
    engine = Engine(Bigrams(directory))
    vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield engine, f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture(scope="module")
def configuration() -> Any:
    def make(target: str, **remote: Any) -> dict[str, Any]:
        return {
            "backend": "vllm-grpc",
            "model": {"path": Path("unread")},
            "remote": {"target": target, "connect_seconds": 5.0, **remote},
        }

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def near(serve: Callable[..., Any], far: tuple[Engine, str], configuration: Any) -> AsyncIterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_module, "_codec", lambda _: ByteCodec("far"))
        async with serve(**configuration(far[1])) as served:
            yield served


async def test_it_keeps_the_contract_but_for_weights(near: Served) -> None:
    replica = near.replica
    results = await examine(replica.server.address, replica.admin.address, ClientConfig(), 20.0)
    assert [(text, why) for text, verdict, why in results if verdict != "kept"] == []
    info = await near.policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=10)
    assert pb.CAPABILITY_WEIGHTS not in info.capabilities


async def test_tokens_are_taken_once_and_the_cache_is_reported(near: Served, far: tuple[Engine, str]) -> None:
    reply = await near.generate(PROMPT, temperature=0, max_tokens=9)
    own = await far[0].model.generate("", PROMPT, Sampling(temperature=0.0, max_tokens=9))
    assert (list(reply.token_ids), reply.cached_tokens) == (own.token_ids, 3)
    assert list(reply.logprobs) == pytest.approx(own.logprobs, abs=1e-5)


async def test_an_interrupted_reply_keeps_its_tokens_and_goes_on(near: Served, far: tuple[Engine, str]) -> None:
    call = asyncio.create_task(near.generate(PROMPT, temperature=0, max_tokens=120))
    async with asyncio.timeout(5):
        while not far[0].running:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.03)
    await near.admin.Pause(pb.PauseRequest(), timeout=10)
    await near.admin.Resume(pb.ResumeRequest(), timeout=10)
    own = await far[0].model.generate("", PROMPT, Sampling(temperature=0.0, max_tokens=120))
    assert list((await call).token_ids) == own.token_ids


async def test_logprobs_from_before_temperature_are_not_for_training_unless_the_engine_was_told_to(
    near: Served, serve: Callable[..., Any], far: tuple[Engine, str], configuration: Any, monkeypatch: Any
) -> None:
    warm = await near.generate(PROMPT, temperature=0.7, max_tokens=3)
    assert "processed_logprobs" in warm.degraded
    monkeypatch.setattr(core_module, "_codec", lambda _: ByteCodec("far"))
    async with serve(**configuration(far[1], logprobs="processed")) as served:
        assert not (await served.generate(PROMPT, temperature=0.7, max_tokens=3)).degraded


async def test_an_engine_that_is_away_is_said(
    serve: Callable[..., Any], far: tuple[Engine, str], configuration: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(core_module, "_codec", lambda _: ByteCodec("far"))
    server = grpc.aio.server()
    vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(far[0], server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with serve(**configuration(f"127.0.0.1:{port}")) as served:
        assert len((await served.generate(PROMPT, max_tokens=3)).token_ids) == 3
        await server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.generate(PROMPT, max_tokens=3)
        error = from_rpc(refused.value)
        assert (error.code, error.reason, error.retry_after) == (grpc.StatusCode.UNAVAILABLE, "UPSTREAM_FAILED", 2.0)


async def test_another_model_and_an_absent_engine_are_named_at_start(
    serve: Callable[..., Any], far: tuple[Engine, str], configuration: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(core_module, "_codec", lambda _: ByteCodec("far"))
    monkeypatch.setattr(far[0], "vocab_size", 32000)
    with pytest.raises(ConfigError, match=r"32000 tokens, the one in model\.path 260"):
        async with serve(**configuration(far[1])):
            pass
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:1"):
        async with serve(**configuration("127.0.0.1:1")):
            pass
