"""What every backend promises through the service's gRPC face."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference.backend import Sampling
from webagent_inference.chat import Chat
from webagent_inference.codec import ChatMessage
from webagent_inference.config import LimitsConfig
from webagent_inference.conformance.__main__ import examine
from webagent_runtime.config import ClientConfig
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

END = 2


@pytest.fixture(scope="module")
def prompt(chat: Chat) -> list[int]:
    return chat.prompt([ChatMessage("user", "Write a long story about a fox, a crow and a river.")])


async def refusal(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return from_rpc(refused.value)


async def test_every_promise_of_the_contract_is_kept(served: Served) -> None:
    replica = served.replica
    results = await examine(replica.server.address, replica.admin.address, ClientConfig(), 100.0)
    assert [(text, why) for text, verdict, why in results if verdict != "kept"] == []


async def test_tokens_are_heard_as_they_come(served: Served, prompt: list[int]) -> None:
    heard: list[tuple[int, float]] = []
    lengths: list[int] = []

    def sink(token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
        heard.extend(zip(token_ids, logprobs, strict=True))
        lengths.append(len(heard))

    sampling = Sampling(temperature=1.0, max_tokens=12, seed=3)
    reply = await served.replica.core.policy.generate("heard", prompt, sampling, sink=sink)
    assert [token for token, _ in heard] == reply.token_ids
    assert [logprob for _, logprob in heard] == reply.logprobs
    assert len(set(lengths)) > 3


async def test_the_model_says_what_it_is(served: Served, chat: Chat) -> None:
    info = await served.policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=10)
    assert (info.vocab_size, info.max_context, list(info.end_token_ids)) == (49152, 1024, [END])
    assert info.model.tokenizer_hash == chat.identity.tokenizer_hash
    assert info.replica == served.replica.name


async def test_a_conversation_becomes_the_prompt_of_its_template(served: Served, chat: Chat) -> None:
    messages = [
        pb.Message(role=pb.ROLE_USER, text="one"),
        pb.Message(role=pb.ROLE_ASSISTANT, token_ids=pb.TokenIds(ids=chat.reply("two"))),
        pb.Message(role=pb.ROLE_USER, text="three"),
    ]
    rendered = await served.policy.Render(pb.RenderRequest(messages=messages, reply_text="four"), timeout=10)
    assert chat._tokenizer.decode(rendered.prompt_token_ids).endswith(
        "user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    )
    assert list(rendered.reply_token_ids) == chat.reply("four")
    assert (await served.policy.Render(pb.RenderRequest(messages=messages), timeout=10)).reply_token_ids == []


async def test_a_reply_has_a_logprob_and_a_version_for_each_token(served: Served, prompt: list[int]) -> None:
    reply = await served.generate(prompt, max_tokens=20, seed=3)
    assert 1 <= len(reply.token_ids) <= 20
    assert len(reply.logprobs) == len(reply.token_ids)
    assert all(logprob <= 0 for logprob in reply.logprobs)
    assert [(span.start, span.end) for span in reply.spans] == [(0, len(reply.token_ids))]
    assert reply.logprob_kind == pb.LOGPROB_KIND_PROCESSED
    assert (reply.sampling.temperature, reply.sampling.seed, reply.sampling.top_p) == (1.0, 3, 1.0)


async def test_an_end_token_that_was_sampled_is_in_the_reply_and_not_in_its_text(served: Served, chat: Chat) -> None:
    question = chat.prompt([ChatMessage("user", "What is the capital of France?")])
    reply = await served.generate(question, temperature=0, max_tokens=64)
    assert reply.finish_reason == pb.FINISH_REASON_STOP
    assert reply.token_ids[-1] == END
    assert "Paris" in reply.text
    assert "<|" not in reply.text


async def test_a_reply_ends_at_max_tokens_and_at_the_context(served: Served, prompt: list[int]) -> None:
    assert (await served.generate(prompt, temperature=0, max_tokens=5)).finish_reason == pb.FINISH_REASON_LENGTH
    long = (prompt * 40)[:1020]
    reply = await served.generate(long, temperature=0, max_tokens=500)
    assert len(reply.token_ids) <= 4
    assert reply.sampling.max_tokens == 4


async def test_greedy_and_seeded_replies_repeat(served: Served, prompt: list[int]) -> None:
    for settings in ({"temperature": 0}, {"temperature": 1.0, "seed": 11}, {"temperature": 0.7, "seed": 1 << 63}):
        first, second = [await served.generate(prompt, max_tokens=12, **settings) for _ in range(2)]
        assert first.token_ids == second.token_ids
    drawn = await asyncio.gather(*(served.generate(prompt, max_tokens=12) for _ in range(4)))
    assert len({tuple(reply.token_ids) for reply in drawn}) > 1


async def test_scores_agree_with_what_was_sampled(served: Served, prompt: list[int]) -> None:
    replies = await asyncio.gather(*(served.generate(prompt, max_tokens=32, seed=seed) for seed in range(8)))
    gaps = []
    for reply in replies:
        score = await served.score(prompt, list(reply.token_ids))
        gaps += [ours - theirs for ours, theirs in zip(score.logprobs, reply.logprobs, strict=True)]
    # One token may differ by bf16's grain between a batch and a single sequence; on average they may not.
    assert max(map(abs, gaps)) < 0.5
    assert sum(map(abs, gaps)) / len(gaps) < 0.06
    assert abs(sum(gaps) / len(gaps)) < 0.02


async def test_logprobs_are_of_the_distribution_after_temperature(served: Served, prompt: list[int]) -> None:
    cold = await served.generate(prompt, temperature=0.05, max_tokens=8, seed=1)
    greedy = await served.generate(prompt, temperature=0, max_tokens=8)
    assert cold.token_ids == greedy.token_ids
    assert min(cold.logprobs) > -0.7
    # At 0 they are the model's own, as a score is.
    score = await served.score(prompt, list(greedy.token_ids))
    assert list(greedy.logprobs) == pytest.approx(list(score.logprobs), abs=0.1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"temperature": -1}, "UNSUPPORTED_SAMPLING"),
        ({"temperature": float("nan")}, "UNSUPPORTED_SAMPLING"),
        ({"temperature": 0.001}, "UNSUPPORTED_SAMPLING"),
        ({"top_p": 1.5}, "UNSUPPORTED_SAMPLING"),
        ({"max_tokens": 0}, "UNSUPPORTED_SAMPLING"),
    ],
)
async def test_settings_that_cannot_be_honoured_are_refused(
    served: Served, prompt: list[int], settings: dict[str, float], reason: str
) -> None:
    assert (await refusal(served.generate(prompt, **settings))).reason == reason


async def test_prompts_that_cannot_be_computed_are_refused(served: Served, prompt: list[int]) -> None:
    assert (await refusal(served.generate((prompt * 40)[:1024]))).reason == "PROMPT_TOO_LONG"
    assert (await refusal(served.generate([*prompt, 49152]))).reason == "UNKNOWN_TOKEN"
    assert (await refusal(served.generate([]))).reason == "INVALID_REQUEST"
    assert (await refusal(served.score(prompt, []))).reason == "INVALID_REQUEST"
    assert (await refusal(served.score(prompt, [60_000]))).reason == "UNKNOWN_TOKEN"


async def test_a_version_that_is_not_served_yet_is_unavailable_with_advice(served: Served, prompt: list[int]) -> None:
    error = await refusal(served.generate(prompt, min_weights_version=1 << 40))
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "VERSION_NOT_READY")
    assert error.retry_after


async def test_a_caller_who_leaves_frees_the_slot(served: Served, prompt: list[int]) -> None:
    call = asyncio.create_task(served.generate(prompt, max_tokens=900))
    await _until(lambda: served.replica.core.policy.requests == 1)
    call.cancel()
    await _until(lambda: served.replica.core.policy.requests == 0)
    await asyncio.wait_for(served.replica.core.policy.backend.interrupt(), 5)


async def test_a_deadline_ends_the_work(served: Served, prompt: list[int]) -> None:
    error = await refusal(served.generate(prompt, max_tokens=900, timeout=0.5))
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    await _until(lambda: served.replica.core.policy.requests == 0)


async def test_more_requests_than_the_bound_are_refused_with_advice(
    served: Served, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = served.replica.core.policy
    monkeypatch.setattr(policy, "_limits", LimitsConfig(max_requests=2))
    results = await asyncio.gather(*(served.generate(prompt, max_tokens=8) for _ in range(5)), return_exceptions=True)
    refused = [from_rpc(result) for result in results if isinstance(result, grpc.aio.AioRpcError)]
    assert [(error.reason, error.retry_after) for error in refused] == [("QUEUE_FULL", 1.0)] * 3


async def test_pausing_keeps_requests_and_resuming_ends_them(served: Served, prompt: list[int]) -> None:
    whole = await served.generate(prompt, temperature=0, max_tokens=40)
    call = asyncio.create_task(served.generate(prompt, temperature=0, max_tokens=40))
    await _until(lambda: served.replica.core.policy.requests == 1)
    for _ in range(2):
        await served.admin.Pause(pb.PauseRequest(), timeout=30)
    assert (await served.policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=10)).paused
    assert not (await asyncio.wait({call}, timeout=0.3))[0]
    for _ in range(2):
        await served.admin.Resume(pb.ResumeRequest(), timeout=30)
    assert (await call).token_ids == whole.token_ids


async def test_the_cache_is_used_and_can_be_emptied(served: Served, prompt: list[int]) -> None:
    long = (prompt * 10)[:400]
    await served.generate(long, max_tokens=1)
    cached = (await served.generate(long, max_tokens=1)).cached_tokens
    await served.admin.ResetCache(pb.ResetCacheRequest(), timeout=30)
    assert (await served.generate(long, max_tokens=1)).cached_tokens == 0
    info = await served.policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=10)
    assert cached >= 128 if info.backend == "vllm" else cached == 0


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the doing of another task, without an event of its own
            await asyncio.sleep(0)
