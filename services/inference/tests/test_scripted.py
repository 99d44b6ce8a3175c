"""The scripted policy: a service without a model, held to the whole contract."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference.codec import END
from webagent_inference.conformance.__main__ import examine
from webagent_runtime.config import ClientConfig
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = [
    {"pattern": "story", "replies": ["The fox sang. " * 8]},
    {"pattern": "coin", "replies": ["heads", "heads", "heads", "tails"]},
    {"pattern": "nothing", "replies": [""]},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scripted(serve: Callable[..., Any]) -> AsyncIterator[Served]:
    async with serve(backend="scripted", script={"rules": RULES, "token_seconds": 0.001}) as served:
        yield served


async def prompt(served: Served, text: str) -> list[int]:
    messages = [pb.Message(role=pb.ROLE_USER, text=text)]
    return list((await served.policy.Render(pb.RenderRequest(messages=messages), timeout=10)).prompt_token_ids)


async def test_the_contract_is_kept(scripted: Served) -> None:
    replica = scripted.replica
    results = await examine(replica.server.address, replica.admin.address, ClientConfig(), 20.0)
    assert [(text, why) for text, verdict, why in results if verdict != "kept"] == []


async def test_replies_are_drawn_as_often_as_they_are_written_down(scripted: Served) -> None:
    question = await prompt(scripted, "Toss a coin.")
    greedy = await scripted.generate(question, temperature=0)
    assert greedy.text == "heads"
    assert greedy.logprobs[0] == pytest.approx(math.log(3 / 4))
    drawn = Counter(
        [(await scripted.generate(question, temperature=1.0, seed=seed)).text for seed in range(60)],
    )
    assert 30 <= drawn["heads"] < 60
    hot = await scripted.generate(question, temperature=100.0, seed=1)
    assert hot.logprobs[0] == pytest.approx(math.log(1 / 2), abs=0.01)


async def test_an_empty_reply_is_its_end_token(scripted: Served) -> None:
    reply = await scripted.generate(await prompt(scripted, "Say nothing."))
    assert (list(reply.token_ids), list(reply.logprobs), reply.text) == ([END], [0.0], "")
    assert reply.finish_reason == pb.FINISH_REASON_STOP


async def test_a_reply_that_is_cut_off_has_no_end_token(scripted: Served) -> None:
    reply = await scripted.generate(await prompt(scripted, "A story."), max_tokens=3)
    assert reply.text == "The"
    assert reply.finish_reason == pb.FINISH_REASON_LENGTH


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (["sang"], "The fox ", 12),
        (["fox sang", "sang"], "The ", 12),
        (["zebra", "."], "The fox sang", 13),
        (["ng. The"], "The fox sa", 17),
        (["zebra"], "The fox sang. The fo", 20),
    ],
)
async def test_a_stop_string_ends_the_reply_with_the_token_that_completes_it(
    scripted: Served, stop: list[str], text: str, tokens: int
) -> None:
    reply = await scripted.generate(await prompt(scripted, "A story."), max_tokens=20, stop=stop)
    assert (reply.text, len(reply.token_ids), len(reply.logprobs)) == (text, tokens, tokens)
    assert [(span.start, span.end) for span in reply.spans] == [(0, tokens)]
    ended = pb.FINISH_REASON_LENGTH if stop == ["zebra"] else pb.FINISH_REASON_STOP
    assert (reply.finish_reason, list(reply.sampling.stop)) == (ended, stop)


async def test_stop_strings_that_are_none_are_refused(scripted: Served) -> None:
    question = await prompt(scripted, "A story.")
    for stop in ([""], ["x"] * 9, ["x" * 129]):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await scripted.generate(question, stop=stop)
        assert from_rpc(refused.value).reason == "UNSUPPORTED_SAMPLING"


async def test_a_reply_goes_on_where_a_pause_cut_it(scripted: Served) -> None:
    question = await prompt(scripted, "A story.")
    call = asyncio.create_task(scripted.generate(question, temperature=0, max_tokens=60))
    await asyncio.sleep(0.02)
    await scripted.admin.Pause(pb.PauseRequest(), timeout=10)
    await scripted.admin.Resume(pb.ResumeRequest(), timeout=10)
    reply = await call
    assert reply.text == ("The fox sang. " * 8)[:60]
    assert len(reply.logprobs) == 60


async def test_a_deadline_ends_the_request_and_frees_its_place(scripted: Served) -> None:
    question = await prompt(scripted, "A story.")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await scripted.generate(question, max_tokens=100, timeout=0.03)
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(1):
        while scripted.replica.core.policy.requests:  # noqa: ASYNC110 - the doing of another task
            await asyncio.sleep(0.001)


async def test_training_that_queues_keeps_no_evaluation_out(serve: Callable[..., Any]) -> None:
    async with serve(
        backend="scripted",
        script={"replies": ["abcdefgh"], "token_seconds": 0.005},
        engine={"max_sequences": 1},
        limits={"max_requests": 4},
    ) as served:
        question = await prompt(served, "Hi.")
        order: list[str] = []

        async def ask(name: str, purpose: pb.Purpose.ValueType) -> None:
            await served.generate(question, purpose=purpose)
            order.append(name)

        training = [asyncio.create_task(ask(f"t{number}", pb.PURPOSE_TRAINING)) for number in range(4)]
        async with asyncio.timeout(5):
            while served.replica.core.policy.requests < 4:  # noqa: ASYNC110 - as grpc delivers them
                await asyncio.sleep(0.001)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask("t4", pb.PURPOSE_TRAINING)
        assert from_rpc(refused.value).reason == "QUEUE_FULL"
        await asyncio.gather(ask("e0", pb.PURPOSE_EVALUATION), *training)
        assert order.index("e0") <= 2
