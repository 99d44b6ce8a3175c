"""An update that is disturbed halfway: nothing gets between its weights and their proof."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference.testing import PROMPT, Publisher
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from conftest import Served


async def greedy(served: Served) -> tuple[list[int], list[int]]:
    reply = await served.generate(PROMPT, temperature=0, max_tokens=12)
    return list(reply.token_ids), [span.weights_version for span in reply.spans]


async def test_emptying_the_cache_during_an_update_waits_and_lets_no_request_in(
    small: Served, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = small.replica.core.policy.backend
    load = backend.load
    calls: list[Any] = []

    async def load_and_be_asked(directory: Path) -> None:
        await load(directory)
        calls.append(asyncio.create_task(greedy(small)))
        async with asyncio.timeout(5):
            while not small.replica.core.policy.requests:  # noqa: ASYNC110 - as grpc delivers them
                await asyncio.sleep(0)
        calls.append(asyncio.ensure_future(small.admin.ResetCache(pb.ResetCacheRequest(), timeout=10)))
        await asyncio.wait(calls, timeout=0.2)

    monkeypatch.setattr(backend, "load", load_and_be_asked)
    await small.update(publisher.publish(1))
    reply, _ = await asyncio.gather(*calls)
    assert reply == (publisher.greedy(1, 12), [1])


async def test_a_pause_during_an_update_does_not_interrupt_its_canaries(
    small: Served, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = small.replica.core.policy
    generate = policy.backend.generate
    pausing: list[Any] = []

    async def generate_and_be_paused(*arguments: Any) -> Any:
        pausing.append(asyncio.create_task(policy.pause()))
        return await generate(*arguments)

    monkeypatch.setattr(policy.backend, "generate", generate_and_be_paused)
    await small.update(publisher.publish(1))
    await asyncio.gather(*pausing)
    assert policy.paused
    await small.admin.Resume(pb.ResumeRequest(), timeout=10)
    monkeypatch.undo()
    assert await greedy(small) == (publisher.greedy(1, 12), [1])


async def test_the_bound_of_an_update_does_not_cut_its_rollback(
    bigrams: Callable[..., Any], publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bigrams(updates={"staging": tmp_path / "staging", "update_seconds": 2.0}) as served:
        first, second, other = (publisher.publish(number) for number in (1, 2, 3))
        await served.update(first)
        backend = served.replica.core.policy.backend
        load = backend.load

        async def load_slowly(directory: Path) -> None:
            await asyncio.sleep(1.2)
            await load(Path(other.uri) if directory == Path(second.uri) else directory)

        monkeypatch.setattr(backend, "load", load_slowly)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await served.update(second)
        assert from_rpc(error.value).reason == "CANARY_MISMATCH"
        assert await greedy(served) == (publisher.greedy(1, 12), [1])
