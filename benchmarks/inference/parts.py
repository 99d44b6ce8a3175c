"""What the benchmarks of inference share: a replica with its client, versions to publish, what the machine is."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent.trajectory.v1 import policy_pb2
from webagent_inference import modeldir
from webagent_inference.config import EngineConfig, InferenceConfig
from webagent_inference.environment import set_environment
from webagent_inference.prepare import DEFAULT_OUT
from webagent_inference.replica import Replica, started
from webagent_runtime.client import open_channel
from webagent_runtime.config import validate

Measure = Callable[[argparse.Namespace], Awaitable[dict[str, Any]]]

SECONDS = 600.0
# As the trainer proves the quick run's versions.
CANARY_PROMPT_TOKENS = 190
CANARY_TOKENS = 8


@dataclass(frozen=True)
class Served:
    """A replica and a client of it."""

    replica: Replica
    stub: inference_pb2_grpc.InferenceServiceAsyncStub

    async def generate(self, name: str, prompt: list[int], **settings: Any) -> pb.GenerateResponse:
        """One reply."""
        minimum = settings.pop("min_weights_version", 0)
        sampling = pb.SamplingSettings(**{"temperature": 1.0, **settings})
        request = pb.GenerateRequest(
            request_id=name, prompt_token_ids=prompt, sampling=sampling, min_weights_version=minimum
        )
        reply: pb.GenerateResponse = await self.stub.Generate(request, timeout=SECONDS)
        return reply


@asynccontextmanager
async def serving(model: Path, **values: Any) -> AsyncIterator[Served]:
    """A replica of the model, on free ports."""
    fixed: dict[str, Any] = {"server": {"port": 0}, "admin": {"port": 0}, "model": {"path": model}, "backend": "vllm"}
    async with started(validate(InferenceConfig, {**fixed, **values}, source="benchmark")) as replica:
        channel = open_channel(replica.server.address)
        try:
            yield Served(replica, inference_pb2_grpc.InferenceServiceStub(channel))
        finally:
            await channel.close()


def tokens(count: int, seed: int) -> list[int]:
    """Ids that look like text to the cache: the same for one seed, others for another."""
    return [1000 + (7919 * (seed + 1) + 31 * index * (seed + 3)) % 30000 for index in range(count)]


async def canary(served: Served, tolerance: float = 0.1) -> policy_pb2.Canary:
    """What the served weights compute: versions with these very weights are proved by it."""
    prompt = tokens(CANARY_PROMPT_TOKENS, 0)
    reply = await served.generate("canary", prompt, temperature=0, max_tokens=CANARY_TOKENS)
    scores = await served.stub.Score(
        pb.ScoreRequest(prompt_token_ids=prompt, token_ids=reply.token_ids), timeout=SECONDS
    )
    return policy_pb2.Canary(
        prompt_token_ids=prompt, token_ids=reply.token_ids, logprobs=scores.logprobs, tolerance=tolerance
    )


def publish(directory: Path, number: int, weights: Path, proof: policy_pb2.Canary) -> policy_pb2.PolicyVersion:
    """The weights of a directory as a policy version."""
    directory.mkdir(parents=True)
    manifest = policy_pb2.PolicyManifest(version=number, phase="rl", canaries=[proof])
    for name in modeldir.weight_files(weights):
        shutil.copy(weights / name, directory / name)
        content = (directory / name).read_bytes()
        for span in modeldir.tensor_spans(directory / name):
            sha256 = hashlib.sha256(content[span.start : span.end]).hexdigest()
            manifest.tensors.add(name=span.name, file=name, dtype=span.dtype, shape=span.shape, sha256=sha256)
    text = json_format.MessageToJson(manifest).encode()
    (directory / "manifest.json").write_bytes(text)
    return policy_pb2.PolicyVersion(
        version=number, uri=str(directory), manifest_digest=hashlib.sha256(text).hexdigest()
    )


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.machine(),
        "load_before": [round(value, 2) for value in os.getloadavg()],
    }


def run(
    description: str | None, measure: Callable[[argparse.Namespace], Awaitable[dict[str, Any]]], **more: int
) -> None:
    """Parses --model, --out and the numbers in `more`, measures, and prints the result as JSON."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--out", type=Path)
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    set_environment(EngineConfig())
    result = {"machine": machine(), **asyncio.run(_awaited(measure, arguments))}
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


async def _awaited(measure: Measure, arguments: argparse.Namespace) -> dict[str, Any]:
    return await measure(arguments)
