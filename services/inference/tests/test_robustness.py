"""What breaks, and what goes on serving: a small real model behind the real transaction, policy and servers."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from webagent.inference.v1 import inference_pb2 as pb
from webagent_inference import core as core_module
from webagent_inference import modeldir
from webagent_inference.codec import BYTE_VOCABULARY
from webagent_inference.testing import FILE, PROMPT, Bigrams, Publisher, log_softmax, table
from webagent_runtime.client import open_channel
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from conftest import Served

SERVICE = "webagent.inference.v1.InferenceService"


@pytest.fixture
def served(small: Served) -> Served:
    return small


async def refusal(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return from_rpc(refused.value)


async def greedy(served: Served, count: int = 12) -> tuple[list[int], list[int]]:
    reply = await served.generate(PROMPT, temperature=0, max_tokens=count)
    return list(reply.token_ids), [span.weights_version for span in reply.spans]


async def still_serves(served: Served, publisher: Publisher, number: int) -> None:
    assert await greedy(served) == (publisher.greedy(number, 12), [number])


def safetensors(header: bytes, size: int | None = None) -> bytes:
    return (len(header) if size is None else size).to_bytes(8, "little") + header


GARBAGE = [
    b"",
    b"\0\0\0",
    b"garbage" * 100,
    safetensors(b"{}", 1 << 62),
    safetensors(b"{not json}"),
    safetensors(b"[1, 2]"),
    safetensors(b"7"),
    safetensors(b"\xff\xfe"),
    safetensors(b"[" * 100_000),
    safetensors(json.dumps({"table": 1}).encode()),
    safetensors(json.dumps({"table": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}).encode()),
    safetensors(json.dumps({"table": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}).encode()),
    safetensors(json.dumps({"table": {"dtype": "F32", "shape": [1], "data_offsets": [-8, 0]}}).encode()),
    safetensors(b'{"table": {"dtype": "F32", "shape": [1], "data_offsets": [0, Infinity]}}'),
    safetensors(b'{"table": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 0]}}'),
    safetensors(json.dumps({"other": {"dtype": "F32", "shape": [], "data_offsets": [0, 0]}}).encode()),
]


async def test_garbage_is_refused_and_the_old_version_goes_on_serving(served: Served, publisher: Publisher) -> None:
    await served.update(publisher.publish(1))
    for number, content in enumerate(GARBAGE, start=2):
        version = publisher.publish(number)
        (Path(version.uri) / FILE).write_bytes(content)
        error = await refusal(served.update(version))
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CHECKSUM_MISMATCH"), content[:80]
        outcome = served.replica.core.updater.outcome
        assert (outcome.served.number, outcome.failed_version) == (1, number)
        assert "CHECKSUM_MISMATCH" in outcome.error
    await still_serves(served, publisher, 1)


@given(data=st.data())
def test_a_damaged_header_is_a_value_error_and_nothing_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(save({"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float16)}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        spans = modeldir.tensor_spans(path)
    except ValueError:
        return
    assert all(0 <= span.start <= span.end <= path.stat().st_size for span in spans)


async def test_weights_with_the_right_sums_that_are_no_policy_are_rolled_back(
    served: Served, publisher: Publisher
) -> None:
    await served.update(publisher.publish(1))
    version = publisher.publish(2)
    directory = Path(version.uri)
    manifest = json.loads((directory / "manifest.json").read_text())
    nan = np.full((BYTE_VOCABULARY, BYTE_VOCABULARY), np.nan, np.float32)
    (directory / FILE).write_bytes(save({"table.weight": nan}))
    manifest["tensors"][0]["sha256"] = hashlib.sha256(nan.tobytes()).hexdigest()
    text = json.dumps(manifest).encode()
    (directory / "manifest.json").write_bytes(text)
    version.manifest_digest = hashlib.sha256(text).hexdigest()
    assert (await refusal(served.update(version))).reason == "CANARY_MISMATCH"
    await still_serves(served, publisher, 1)


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_at_staging_leaves_nothing_behind_and_the_next_try_works(
    served: Served, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.update(publisher.publish(1))
    version = publisher.publish(2, memory=True)
    staging = served.replica.core.updater.config.staging / "0"
    with no_file_longer_than(4096):
        error = await refusal(served.update(version))
    assert error.reason == "UPDATE_FAILED"
    assert "cannot be brought here" in error.message
    with monkeypatch.context() as patch:
        full = shutil.disk_usage(staging)._replace(free=1000)
        patch.setattr(shutil, "disk_usage", lambda _: full)
        error = await refusal(served.update(version))
    assert (error.reason, "1000 are free" in error.message) == ("UPDATE_FAILED", True)
    assert list(staging.iterdir()) == []
    await still_serves(served, publisher, 1)
    await served.update(version)
    await still_serves(served, publisher, 2)


async def test_a_download_that_went_wrong_is_downloaded_again(served: Served, publisher: Publisher) -> None:
    version = publisher.publish(1, memory=True)
    memory, path = fsspec.filesystem("memory"), f"{version.uri.removeprefix('memory://')}/{FILE}"
    content: bytes = memory.cat_file(path)
    memory.pipe_file(path, content[:-1] + bytes([content[-1] ^ 1]))
    assert (await refusal(served.update(version))).reason == "CHECKSUM_MISMATCH"
    memory.pipe_file(path, content)
    await served.update(version)
    await still_serves(served, publisher, 1)


async def test_replicas_that_share_a_staging_directory_do_not_touch_each_other_s_files(
    bigrams: Callable[..., Any], publisher: Publisher, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        updates = {"staging": tmp_path / "shared"}
        first, second = [await stack.enter_async_context(bigrams(updates=updates)) for _ in range(2)]
        for number in (1, 2, 3):
            version = publisher.publish(number, memory=True)
            # One after the other: readers of a file in memory share its position.
            await first.update(version)
            await second.update(version)
        assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["0", "0.lock", "1", "1.lock"]
        assert [len(list((tmp_path / "shared" / name).iterdir())) for name in ("0", "1")] == [2, 2]


async def test_a_replica_is_rolled_back_by_an_update_to_an_older_version(served: Served, publisher: Publisher) -> None:
    versions = [publisher.publish(number) for number in (1, 2)]
    for index in (0, 1, 0, 1):
        await served.update(versions[index])
        await still_serves(served, publisher, index + 1)
    assert (await served.update(versions[1])).seconds == 0


async def test_updates_that_are_asked_for_at_once_are_made_one_after_the_other(
    served: Served, publisher: Publisher
) -> None:
    versions = [publisher.publish(number) for number in (1, 2, 3)]
    answers = await asyncio.gather(*(served.update(version) for version in versions))
    assert [answer.version for answer in answers] == [1, 2, 3]
    _, [last] = await greedy(served)
    assert last in (1, 2, 3), "calls at once arrive in any order; the last to arrive is served"
    await still_serves(served, publisher, last)


async def begun(served: Served, count: int) -> None:
    async with asyncio.timeout(5):
        while served.replica.core.policy.requests < count:  # noqa: ASYNC110 - as grpc delivers them
            await asyncio.sleep(0)
    await asyncio.sleep(0.03)


@pytest.mark.parametrize(
    ("updates", "spans"),
    [
        ({"in_flight": "finish"}, [0]),
        ({"in_flight": "continue"}, [0, 1]),
        ({"in_flight": "finish", "finish_seconds": 0.05}, [0, 1]),
    ],
)
async def test_requests_in_flight_finish_under_the_old_weights_or_continue_under_the_new(
    bigrams: Callable[..., Any], publisher: Publisher, tmp_path: Path, updates: dict[str, Any], spans: list[int]
) -> None:
    async with bigrams(updates={"staging": tmp_path / "staging", **updates}) as served:
        call = asyncio.create_task(served.generate(PROMPT, temperature=0, max_tokens=200))
        await begun(served, 1)
        await served.update(publisher.publish(1))
        reply = await call
        assert [span.weights_version for span in reply.spans] == spans
        assert reply.spans[-1].end == len(reply.token_ids) == len(reply.logprobs) == 200
        # Every token is the greedy one of the version that its span names.
        tables = [table(0), table(1)]
        context = PROMPT
        for span in reply.spans:
            for token in reply.token_ids[span.start : span.end]:
                assert token == int(tables[span.weights_version][context[-1]].argmax())
                context = [*context, token]
        await still_serves(served, publisher, 1)


async def health(served: Served) -> int:
    async with open_channel(served.replica.server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        status: int = (await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=5)).status
        return status


async def test_a_dead_engine_is_seen_and_another_one_serves_the_same_version(
    served: Served, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.update(publisher.publish(1))
    await served.update(publisher.publish(2))
    dead: Any = served.replica.core.policy.backend
    may_start = asyncio.Event()

    async def start(config: Any, codec: Any) -> Bigrams:
        await may_start.wait()
        return Bigrams(config.directory)

    monkeypatch.setattr(core_module, "_start_backend", start)
    running = asyncio.create_task(served.replica.run())
    calls = [asyncio.create_task(served.generate(PROMPT, max_tokens=2000)) for _ in range(3)]
    await begun(served, 3)
    dead.die()
    for call in calls:
        error = await refusal(call)
        assert (error.code, error.reason, error.retry_after) == (grpc.StatusCode.UNAVAILABLE, "ENGINE_DEAD", 1.0)
        assert "caught fire" in error.message
    assert await health(served) == health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await refusal(served.generate(PROMPT))).reason == "ENGINE_DEAD"
    may_start.set()
    async with asyncio.timeout(5):
        while await health(served) != health_pb2.HealthCheckResponse.SERVING:  # noqa: ASYNC110 - over the wire
            await asyncio.sleep(0.01)
    await still_serves(served, publisher, 2)
    await served.update(publisher.publish(3))
    await still_serves(served, publisher, 3)
    assert not running.done()
    running.cancel()


async def test_an_engine_that_dies_too_often_or_cannot_be_started_ends_the_process(
    bigrams: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bigrams(engine={"restarts": 1}) as served:
        running = asyncio.create_task(served.replica.run())
        for _ in range(2):
            backend: Any = served.replica.core.policy.backend
            backend.die()
            async with asyncio.timeout(5):
                while served.replica.core.policy.backend is backend and not running.done():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="caught fire"):
            await running

    async def start(config: Any, codec: Any) -> Bigrams:
        raise OSError(errno.ENOMEM, "no memory")

    async with bigrams() as served:
        monkeypatch.setattr(core_module, "_start_backend", start)
        backend = served.replica.core.policy.backend
        backend.die()
        with pytest.raises(RuntimeError, match="no memory"):
            await served.replica.run()


async def test_two_replicas_under_load_take_rolling_updates_without_a_failed_request(
    bigrams: Callable[..., Any], publisher: Publisher
) -> None:
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(bigrams()) for _ in range(2)]
        over = asyncio.Event()
        replies: list[pb.GenerateResponse] = []

        async def load(number: int) -> None:
            while not over.is_set():
                served = replicas[number % 2]
                replies.append(await served.generate(PROMPT, temperature=1.0, max_tokens=30, seed=number))

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(load(number))
            for number in range(1, 6):
                version = publisher.publish(number)
                for served in replicas:
                    await asyncio.sleep(0.05)
                    await served.update(version)
            over.set()
        for reply in replies:
            assert reply.spans[-1].end == len(reply.token_ids) == 30
            for span, context in zip(reply.spans, [[], *(reply.token_ids[: s.end] for s in reply.spans)], strict=False):
                scores = log_softmax(table(span.weights_version)[[*PROMPT, *context][-1]])
                assert reply.logprobs[span.start] == pytest.approx(float(scores[reply.token_ids[span.start]]), abs=1e-4)
        assert any(len(reply.spans) > 1 for reply in replies)
        assert len(replies) > 20
