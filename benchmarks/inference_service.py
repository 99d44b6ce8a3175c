"""What the inference service costs over the engine it runs, and how long new weights take.

    python benchmarks/inference_service.py [--model DIR] [--rounds 4] [--out FILE]

One engine, two ways to the same requests in turn: bare `AsyncLLM.generate` and the service's Generate over gRPC. Then
the same weights are applied as new versions, checks and canary included. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent.trajectory.v1 import policy_pb2
from webagent_inference import modeldir
from webagent_inference.backend import Sampling
from webagent_inference.config import EngineConfig, InferenceConfig
from webagent_inference.environment import set_environment
from webagent_inference.prepare import DEFAULT_OUT
from webagent_inference.replica import Replica, started
from webagent_runtime.client import open_channel
from webagent_runtime.config import validate

REQUESTS = 16
PROMPT_TOKENS = 490
SHARED_TOKENS = 256
REPLY_TOKENS = 64
UPDATES = 5
# As the trainer proves the quick run's versions.
CANARY_PROMPT_TOKENS = 190
CANARY_TOKENS = 8
SECONDS = 600.0


def prompts() -> list[list[int]]:
    """Prompts that share a prefix, as turns of one kind of task do."""
    return [
        [1000 + (7 * i) % 30000 for i in range(SHARED_TOKENS)]
        + [1000 + (11 * i + 101 * row) % 30000 for i in range(PROMPT_TOKENS - SHARED_TOKENS)]
        for row in range(REQUESTS)
    ]


async def rate(generate: Callable[[int, list[int]], Awaitable[int]]) -> float:
    """Tokens per second of all requests at once."""
    began = time.monotonic()
    tokens = await asyncio.gather(*(generate(row, prompt) for row, prompt in enumerate(prompts())))
    return sum(tokens) / (time.monotonic() - began)


async def compare(replica: Replica, stub: inference_pb2_grpc.InferenceServiceAsyncStub, rounds: int) -> dict[str, Any]:
    """Rates of the two ways, in turn."""
    from vllm.inputs import tokens_input  # noqa: PLC0415 - after the environment is set
    from webagent_inference.vllm_backend import VllmBackend  # noqa: PLC0415

    backend = replica.core.policy.backend
    assert isinstance(backend, VllmBackend)

    async def bare(row: int, prompt: list[int]) -> int:
        parameters = backend.parameters(Sampling(temperature=1.0, max_tokens=REPLY_TOKENS, seed=row))
        tokens = 0
        async for output in backend.engine.generate(tokens_input(prompt), parameters, f"bare-{row}"):
            tokens = len(output.outputs[0].token_ids)
        return tokens

    async def service(row: int, prompt: list[int]) -> int:
        settings = pb.SamplingSettings(temperature=1.0, max_tokens=REPLY_TOKENS, seed=row)
        request = pb.GenerateRequest(request_id=f"service-{row}", prompt_token_ids=prompt, sampling=settings)
        return len((await stub.Generate(request, timeout=SECONDS)).token_ids)

    await rate(bare)
    rates: dict[str, list[float]] = {"bare": [], "service": []}
    for number in range(rounds):
        order = [("bare", bare), ("service", service)]
        for name, way in order if number % 2 == 0 else reversed(order):
            rates[name].append(await rate(way))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "tokens_per_second": {name: round(value, 1) for name, value in medians.items()},
        "rounds": {name: [round(value, 1) for value in values] for name, values in rates.items()},
        "service_over_bare": round(medians["service"] / medians["bare"], 3),
    }


async def canary(stub: inference_pb2_grpc.InferenceServiceAsyncStub) -> policy_pb2.Canary:
    """What the served weights compute: the versions below hold the very same."""
    prompt = prompts()[0][:CANARY_PROMPT_TOKENS]
    settings = pb.SamplingSettings(temperature=0, max_tokens=CANARY_TOKENS)
    request = pb.GenerateRequest(request_id="canary", prompt_token_ids=prompt, sampling=settings)
    reply = await stub.Generate(request, timeout=SECONDS)
    scores = await stub.Score(pb.ScoreRequest(prompt_token_ids=prompt, token_ids=reply.token_ids), timeout=SECONDS)
    return policy_pb2.Canary(
        prompt_token_ids=prompt, token_ids=reply.token_ids, logprobs=scores.logprobs, tolerance=0.1
    )


def publish(directory: Path, number: int, model: Path, proof: policy_pb2.Canary) -> pb.UpdateWeightsRequest:
    """The model's weights as a policy version."""
    directory.mkdir()
    manifest = policy_pb2.PolicyManifest(version=number, phase="rl", canaries=[proof])
    for name in modeldir.weight_files(model):
        shutil.copy(model / name, directory / name)
        content = (directory / name).read_bytes()
        for span in modeldir.tensor_spans(directory / name):
            sha256 = hashlib.sha256(content[span.start : span.end]).hexdigest()
            manifest.tensors.add(name=span.name, file=name, dtype=span.dtype, shape=span.shape, sha256=sha256)
    text = json_format.MessageToJson(manifest).encode()
    (directory / "manifest.json").write_bytes(text)
    return pb.UpdateWeightsRequest(version=number, uri=str(directory), manifest_digest=hashlib.sha256(text).hexdigest())


async def updates(replica: Replica, stub: inference_pb2_grpc.InferenceServiceAsyncStub, model: Path) -> dict[str, Any]:
    """Seconds of whole updates and of their stages."""
    proof = await canary(stub)
    updater = replica.core.updater
    seconds: list[float] = []
    stages: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="versions-") as directory:
        for number in range(1, UPDATES + 1):
            request = publish(Path(directory) / str(number), number, model, proof)
            seconds.append(await updater.apply(request.version, request.uri, request.manifest_digest))
            stages.append(dict(updater.seconds))
    return {
        "seconds": round(statistics.median(seconds), 3),
        "rounds": [round(value, 3) for value in seconds],
        "stages": {name: round(statistics.median(each[name] for each in stages), 3) for name in stages[0]},
        "bytes": sum((model / name).stat().st_size for name in modeldir.weight_files(model)),
    }


async def measure(model: Path, rounds: int) -> dict[str, Any]:
    """Both measurements on one replica."""
    values = {"server": {"port": 0}, "admin": {"port": 0}, "model": {"path": model}, "backend": "vllm"}
    async with started(validate(InferenceConfig, values, source="benchmark")) as replica:
        channel = open_channel(replica.server.address)
        stub: inference_pb2_grpc.InferenceServiceAsyncStub = inference_pb2_grpc.InferenceServiceStub(channel)
        try:
            return {
                "machine": {"cores": len(os.sched_getaffinity(0)), "processor": platform.machine()},
                "load_before": [round(value, 2) for value in os.getloadavg()],
                "requests": REQUESTS,
                "prompt_tokens": PROMPT_TOKENS,
                "reply_tokens": REPLY_TOKENS,
                "generate": await compare(replica, stub, rounds),
                "update": await updates(replica, stub, model),
            }
        finally:
            await channel.close()


def main() -> None:
    """Prints the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    set_environment(EngineConfig())
    result = json.dumps(asyncio.run(measure(arguments.model, arguments.rounds)), indent=2)
    print(result)
    if arguments.out is not None:
        arguments.out.write_text(result + "\n")


if __name__ == "__main__":
    main()
