"""Policy versions that are low-rank adapters: merged, proved and served as any other; bad ones refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format
from safetensors.numpy import save
from webagent.trajectory.v1 import policy_pb2
from webagent_inference import adapters, modeldir
from webagent_inference.codec import BYTE_VOCABULARY
from webagent_inference.testing import PROMPT, Publisher, Table, log_softmax, table
from webagent_runtime.errors import ServiceError, from_rpc

if TYPE_CHECKING:
    from conftest import Served

SCALE = 0.5
ADAPTER = "adapter_model.safetensors"
PREFIX = "base_model.model."


def low_rank(seed: int, rank: int = 2) -> tuple[Table, Table]:
    dice = np.random.default_rng(seed)
    a = dice.normal(0, 2, (rank, BYTE_VOCABULARY)).astype(np.float32)
    return a, dice.normal(0, 2, (BYTE_VOCABULARY, rank)).astype(np.float32)


def whole(seed: int) -> Table:
    a, b = low_rank(seed)
    logits: Table = table(0) + np.float32(SCALE) * (b @ a)
    return logits


def greedy(logits: Table, count: int) -> list[int]:
    ids: list[int] = []
    for _ in range(count):
        ids.append(int(logits[[*PROMPT, *ids][-1]].argmax()))
    return ids


def publish(directory: Path, number: int, tensors: dict[str, Table]) -> policy_pb2.PolicyVersion:
    """An adapter whose canary is that of the base with this number's low-rank change."""
    directory.mkdir(parents=True)
    (directory / ADAPTER).write_bytes(save(tensors))
    content = (directory / ADAPTER).read_bytes()
    manifest = policy_pb2.PolicyManifest(version=number, adapter=policy_pb2.Adapter(scale=SCALE))
    for span in modeldir.tensor_spans(directory / ADAPTER):
        sha256 = hashlib.sha256(content[span.start : span.end]).hexdigest()
        manifest.tensors.add(name=span.name, file=ADAPTER, dtype=span.dtype, shape=span.shape, sha256=sha256)
    logits = whole(number)
    ids = greedy(logits, 4)
    before = [PROMPT[-1], *ids]
    scores = [float(log_softmax(logits[last])[token]) for last, token in zip(before, ids, strict=False)]
    manifest.canaries.add(prompt_token_ids=PROMPT, token_ids=ids, logprobs=scores, tolerance=1e-3)
    text = json_format.MessageToJson(manifest).encode()
    (directory / "manifest.json").write_bytes(text)
    return policy_pb2.PolicyVersion(
        version=number, uri=str(directory), manifest_digest=hashlib.sha256(text).hexdigest()
    )


def adapter(number: int, prefix: str = PREFIX) -> dict[str, Table]:
    a, b = low_rank(number)
    return {f"{prefix}table.lora_A.weight": a, f"{prefix}table.lora_B.weight": b}


async def says(served: Served) -> list[int]:
    return list((await served.generate(PROMPT, temperature=0, max_tokens=12)).token_ids)


async def test_an_adapter_is_served_on_the_base_and_not_on_what_was_served_before(
    small: Served, publisher: Publisher, tmp_path: Path
) -> None:
    await small.update(publish(tmp_path / "a", 1, adapter(1)))
    assert await says(small) == greedy(whole(1), 12)
    await small.update(publisher.publish(2))
    assert await says(small) == publisher.greedy(2, 12)
    await small.update(publish(tmp_path / "c", 3, adapter(3, prefix="")))
    assert await says(small) == greedy(whole(3), 12)
    # The merged models of the served version and the one before are kept, and nothing else.
    staged = list((small.replica.core.updater.config.staging / "0").iterdir())
    assert [path.name.split("-merged-")[0] for path in staged] == ["3"]


@pytest.mark.parametrize(
    ("change", "reason", "named"),
    [
        (lambda t: t.pop("table.lora_B.weight"), "UPDATE_FAILED", "not two for each"),
        (lambda t: t.clear(), "UPDATE_FAILED", "0 tensors"),
        (
            lambda t: t.update({"other.lora_A.weight": t.pop("table.lora_A.weight")}),
            "UPDATE_FAILED",
            "not two for each",
        ),
        (lambda t: t.update({"table.weight": table(1)}), "UPDATE_FAILED", "no tensor of an adapter"),
        (lambda t: t.update({"table.lora_A.weight": low_rank(1, rank=3)[0]}), "UPDATE_FAILED", "has shapes"),
        (lambda t: t.update({"table.lora_A.weight": low_rank(1)[1]}), "UPDATE_FAILED", "has shapes"),
        (lambda t: t.update({"table.lora_A.weight": np.zeros(4, np.float32)}), "UPDATE_FAILED", "has shapes"),
        (lambda t: t.update(adapter(7, prefix="")), "CANARY_MISMATCH", "off by"),
        (lambda t: t.update({"table.lora_A.weight": low_rank(1)[0] * np.nan}), "CANARY_MISMATCH", "off by nan"),
    ],
)
async def test_a_bad_adapter_is_refused_with_the_old_version_serving(
    small: Served,
    publisher: Publisher,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], Any],
    reason: str,
    named: str,
) -> None:
    await small.update(publisher.publish(1))
    tensors: dict[str, Any] = adapter(2, prefix="")
    change(tensors)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await small.update(publish(tmp_path / "bad", 2, tensors))
    error = from_rpc(refused.value)
    assert (error.reason, named in error.message) == (reason, True), error.message
    assert await says(small) == publisher.greedy(1, 12)


def test_only_matrices_of_the_base_are_changed() -> None:
    manifest = policy_pb2.PolicyManifest()
    for name, shape in (("norm.lora_A.weight", [1, 4]), ("norm.lora_B.weight", [4, 1])):
        manifest.tensors.add(name=name, shape=shape)
    for base in ({"norm.weight": (4,)}, {"other.weight": (4, 4)}):
        with pytest.raises(ServiceError, match="no matrix of the base model"):
            adapters.expected(manifest, base)
    assert adapters.expected(manifest, {"norm.weight": (4, 4)})
