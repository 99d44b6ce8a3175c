"""Payloads: what comes back is what was put, or an error that says why not."""

import grpc
import pytest
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.config import ConfigError, PayloadConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.payloads import PayloadStore


@pytest.fixture
def store(tmp_path):
    return PayloadStore(PayloadConfig(uri=f"file://{tmp_path}/payloads"))


async def test_a_payload_comes_back_whole(store):
    ref = await store.put("run/episode/turn-0.png", b"picture", "image/png")
    assert await store.get(ref) == b"picture"
    assert (ref.size_bytes, ref.media_type, len(ref.sha256)) == (7, "image/png", 64)


async def test_two_stores_on_one_prefix_share_payloads(store, tmp_path):
    ref = await store.put("a", b"x", "text/plain")
    assert await PayloadStore(PayloadConfig(uri=f"{tmp_path}/payloads/")).get(ref) == b"x"


async def test_a_changed_payload_is_refused(store, tmp_path):
    ref = await store.put("a", b"before", "text/plain")
    (tmp_path / "payloads" / "a").write_bytes(b"behind")
    with pytest.raises(ServiceError) as caught:
        await store.get(ref)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.DATA_LOSS, "PAYLOAD_CORRUPT")


async def test_a_missing_payload_is_named(store, tmp_path):
    ref = await store.put("a", b"x", "text/plain")
    (tmp_path / "payloads" / "a").unlink()
    with pytest.raises(ServiceError, match="does not exist"):
        await store.get(ref)


async def test_a_store_that_cannot_be_read_is_unavailable_and_to_be_asked_again(store, tmp_path):
    ref = await store.put("a", b"x", "text/plain")
    (tmp_path / "payloads").rename(tmp_path / "away")
    (tmp_path / "payloads").touch()
    with pytest.raises(ServiceError, match="NotADirectoryError") as caught:
        await store.get(ref)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "PAYLOAD_UNAVAILABLE")
    assert caught.value.retry_after


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "{root}/payloads/../secret", "{root}/payloads-other/a"])
async def test_a_reference_to_elsewhere_is_refused(store, tmp_path, uri):
    ref = trajectory_pb2.PayloadRef(uri=uri.format(root=f"file://{tmp_path}"))
    with pytest.raises(ServiceError) as caught:
        await store.get(ref)
    assert caught.value.reason == "PAYLOAD_FOREIGN"


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b"])
async def test_a_name_outside_the_prefix_is_refused(store, name):
    with pytest.raises(ServiceError, match="relative path"):
        await store.put(name, b"x", "text/plain")


async def test_no_partial_file_is_left_beside_a_payload(store, tmp_path):
    await store.put("a", b"x", "text/plain")
    await store.put("a", b"y", "text/plain")
    assert [path.name for path in (tmp_path / "payloads").iterdir()] == ["a"]


def test_an_unknown_kind_of_store_is_named():
    with pytest.raises(ConfigError, match=r"payloads.uri nonsense://x"):
        PayloadStore(PayloadConfig(uri="nonsense://x"))


async def test_other_file_systems_work_too():
    store = PayloadStore(PayloadConfig(uri="memory://payloads"))
    assert await store.get(await store.put("a/b", b"x", "text/plain")) == b"x"
