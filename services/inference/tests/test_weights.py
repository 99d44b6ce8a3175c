"""New weights: served whole, or not at all."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import grpc
import pytest
from webagent.inference.v1 import inference_pb2 as pb
from webagent.trajectory.v1 import policy_pb2
from webagent_inference.backend import Sampling
from webagent_inference.chat import Chat
from webagent_inference.codec import ChatMessage
from webagent_runtime.errors import from_rpc

if TYPE_CHECKING:
    from conftest import Served, Trainer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def prompt(chat: Chat) -> list[int]:
    return chat.prompt([ChatMessage("user", "List things that are found near the sea. " * 12)])


async def serving(served: Served) -> pb.GetModelInfoResponse:
    return await served.policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=10)


def own_copy(directory: Path) -> Path:
    """The version's weights, no longer shared with other versions."""
    weights = directory / "model-00001-of-00001.safetensors"
    shared = weights.rename(directory / "shared")
    shutil.copy(shared, weights)
    shared.unlink()
    return weights


async def refused(served: Served, version: policy_pb2.PolicyVersion, reason: str) -> None:
    """The update is refused for this reason; the version and the tokens that are served stay the same."""
    probe = [5, 6, 7, 8, 9, 10]
    before, scores = await serving(served), await served.score(probe, probe)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await served.update(version)
    assert from_rpc(error.value).reason == reason
    after = await serving(served)
    assert (after.weights_version, after.manifest_digest) == (before.weights_version, before.manifest_digest)
    assert (await served.score(probe, probe)).logprobs == scores.logprobs
    assert served.replica.core.updater.outcome.failed_version == version.version


async def test_a_new_version_is_served_once_and_named_in_replies(
    served: Served, trainer: Trainer, prompt: list[int]
) -> None:
    before = await served.score(prompt, prompt[:8])
    version = trainer.publish(noise=0.05)
    first = await served.update(version)
    again = await served.update(version)
    assert (first.version, again.version, again.seconds) == (version.version, version.version, 0)
    assert first.seconds > 0
    reply = await served.generate(prompt, min_weights_version=version.version)
    assert [span.weights_version for span in reply.spans] == [version.version]
    after = await served.score(prompt, prompt[:8])
    assert after.weights_version == version.version
    assert after.logprobs != before.logprobs


async def test_nothing_computed_with_old_weights_is_used_after_the_switch(
    served: Served, trainer: Trainer, prompt: list[int]
) -> None:
    await served.update(trainer.publish(noise=0.02))
    await served.generate(prompt, max_tokens=1)
    await served.update(trainer.publish(noise=0.05))
    fresh = await served.generate(prompt, temperature=0, max_tokens=24)
    assert fresh.cached_tokens == 0
    await served.admin.ResetCache(pb.ResetCacheRequest(), timeout=30)
    assert (await served.generate(prompt, temperature=0, max_tokens=24)).token_ids == fresh.token_ids


async def test_requests_in_flight_go_on_under_the_new_weights(
    served: Served, trainer: Trainer, prompt: list[int]
) -> None:
    old = (await serving(served)).weights_version
    version = trainer.publish(noise=0.05)
    begun = asyncio.Event()
    sampling = Sampling(temperature=2.0, max_tokens=200, seed=6)
    policy = served.replica.core.policy
    watched = asyncio.create_task(policy.generate("watched", prompt[:60], sampling, sink=lambda *_: begun.set()))
    async with asyncio.timeout(60):
        await begun.wait()
    calls = [
        asyncio.create_task(served.generate(prompt[: 60 + 8 * n], max_tokens=60, temperature=2.0, seed=n))
        for n in range(4)
    ]
    await served.update(version)
    replies = await asyncio.gather(*calls)
    for reply in replies:
        bounds = [0, *(span.end for span in reply.spans)]
        assert [span.start for span in reply.spans] == bounds[:-1]
        assert bounds[-1] == len(reply.token_ids) == len(reply.logprobs)
        assert [span.weights_version for span in reply.spans] in ([old], [old, version.version], [version.version])
    assert [span.version for span in (await watched).spans] == [old, version.version]


async def test_a_used_number_with_another_digest_is_refused(served: Served, trainer: Trainer) -> None:
    version = trainer.publish()
    await served.update(version)
    directory, manifest = trainer.manifest_of(version)
    manifest.step += 1
    await refused(served, trainer.announce(directory, manifest), "VERSION_CONFLICT")


async def test_a_changed_byte_is_noticed(served: Served, trainer: Trainer) -> None:
    version = trainer.publish()
    weights = own_copy(trainer.manifest_of(version)[0])
    with weights.open("r+b") as file:
        file.seek(-1000, 2)
        byte = file.read(1)
        file.seek(-1000, 2)
        file.write(bytes([byte[0] ^ 1]))
    await refused(served, version, "CHECKSUM_MISMATCH")


async def test_a_truncated_file_and_another_manifest_are_noticed(served: Served, trainer: Trainer) -> None:
    version = trainer.publish()
    directory, _ = trainer.manifest_of(version)
    changed = policy_pb2.PolicyVersion(version=version.version, uri=version.uri, manifest_digest="0" * 64)
    await refused(served, changed, "CHECKSUM_MISMATCH")
    weights = own_copy(directory)
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 100)
    await refused(served, version, "CHECKSUM_MISMATCH")


async def test_missing_files_are_named(served: Served, trainer: Trainer) -> None:
    version = trainer.publish()
    directory, _ = trainer.manifest_of(version)
    (directory / "model-00001-of-00001.safetensors").unlink()
    await refused(served, version, "WEIGHTS_NOT_FOUND")
    shutil.rmtree(directory)
    await refused(served, version, "WEIGHTS_NOT_FOUND")


async def test_weights_that_do_not_compute_what_the_trainer_computed_are_rolled_back(
    served: Served, trainer: Trainer
) -> None:
    await refused(served, trainer.publish(noise=0.5, canary_of=0.02), "CANARY_MISMATCH")


async def test_a_version_proves_itself_or_is_refused(served: Served, trainer: Trainer) -> None:
    directory, manifest = trainer.manifest_of(trainer.publish())
    del manifest.canaries[:]
    await refused(served, trainer.announce(directory, manifest), "CANARY_MISMATCH")


async def test_a_version_must_have_the_tensors_of_the_model(served: Served, trainer: Trainer) -> None:
    directory, manifest = trainer.manifest_of(trainer.publish())
    del manifest.tensors[-1]
    await refused(served, trainer.announce(directory, manifest), "UPDATE_FAILED")
    manifest.tensors.add().CopyFrom(manifest.tensors[0])
    manifest.tensors[-1].name = "model.extra.weight"
    await refused(served, trainer.announce(directory, manifest), "UPDATE_FAILED")


async def test_a_file_name_cannot_leave_the_directory(served: Served, trainer: Trainer) -> None:
    directory, manifest = trainer.manifest_of(trainer.publish())
    manifest.tensors[0].file = "../1/model-00001-of-00001.safetensors"
    await refused(served, trainer.announce(directory, manifest), "UPDATE_FAILED")


async def test_a_remote_version_is_downloaded_and_old_downloads_are_deleted(served: Served, trainer: Trainer) -> None:
    memory = fsspec.filesystem("memory")
    staging = served.replica.core.updater.config.staging / "0"
    for _ in range(3):
        version = trainer.publish()
        directory, _ = trainer.manifest_of(version)
        prefix = f"/policies/{version.version}"
        for path in directory.iterdir():
            memory.pipe_file(f"{prefix}/{path.name}", path.read_bytes())
        version.uri = f"memory:/{prefix}"
        await served.update(version)
        assert (await serving(served)).weights_version == version.version
        memory.rm(prefix, recursive=True)
    assert len(list(staging.iterdir())) == 2
    await served.update(trainer.publish())


async def test_an_update_while_paused_keeps_the_pause(served: Served, trainer: Trainer) -> None:
    await served.admin.Pause(pb.PauseRequest(), timeout=30)
    version = trainer.publish()
    await served.update(version)
    info = await serving(served)
    assert (info.paused, info.weights_version) == (True, version.version)
    await served.admin.Resume(pb.ResumeRequest(), timeout=30)
