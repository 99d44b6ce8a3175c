"""JetStream's object store: files come back whole, and what is missing or away is said."""

import asyncio

import pytest
from webagent_runtime import jetstream_files
from webagent_runtime.config import PayloadConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.files import open_prefix
from webagent_runtime.payloads import PayloadStore


@pytest.fixture
def prefix(nats):
    return f"jetstream://{nats.url.removeprefix('nats://')}/payloads/run"


async def test_a_payload_comes_back_whole_from_wherever_it_is_asked_for(prefix):
    content = bytes(range(256)) * 4096
    ref = await PayloadStore(PayloadConfig(uri=prefix)).put("episode/turn-0", content, "application/octet-stream")
    assert ref.uri == f"{prefix}/episode/turn-0"
    assert await PayloadStore(PayloadConfig(uri=prefix)).get(ref) == content
    ref.uri += "-missing"
    with pytest.raises(ServiceError) as caught:
        await PayloadStore(PayloadConfig(uri=prefix)).get(ref)
    assert caught.value.reason == "PAYLOAD_NOT_FOUND"


async def test_files_are_downloaded_listed_sized_and_deleted(prefix, tmp_path):
    def use():
        files, root = open_prefix(prefix)
        files.pipe_file(f"{root}/1/model", b"weights" * 100_000)
        files.pipe_file(f"{root}/1/empty", b"")
        assert files.size(f"{root}/1/model") == 700_000
        assert sorted(files.ls(f"{root}/1", detail=False)) == [f"{root}/1/empty", f"{root}/1/model"]
        files.get_file(f"{root}/1/model", str(tmp_path / "model"))
        assert (tmp_path / "model").read_bytes() == b"weights" * 100_000
        assert files.cat_file(f"{root}/1/empty") == b""
        files.rm_file(f"{root}/1/model")
        assert not files.exists(f"{root}/1/model")
        for missing in (f"{root}/1/model", "nobucket/x"):
            with pytest.raises(FileNotFoundError):
                files.cat_file(missing)

    await asyncio.to_thread(use)


async def test_a_server_that_is_away_is_an_error_of_the_system(monkeypatch):
    monkeypatch.setattr(jetstream_files, "CONNECT_SECONDS", 1)
    files, root = open_prefix("jetstream://127.0.0.1:1/bucket/x")
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1 cannot be reached"):
        await asyncio.to_thread(files.cat_file, root)
