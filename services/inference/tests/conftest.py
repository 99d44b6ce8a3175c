"""A real replica for each backend, and a trainer that writes policy versions."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf import json_format
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent.trajectory.v1 import policy_pb2
from webagent_inference import core as core_module
from webagent_inference import modeldir
from webagent_inference.chat import Chat
from webagent_inference.codec import ByteCodec, ChatMessage
from webagent_inference.config import EngineConfig, InferenceConfig
from webagent_inference.environment import set_environment
from webagent_inference.prepare import DEFAULT_OUT, prepare
from webagent_inference.replica import Replica, started
from webagent_inference.testing import FILE, Bigrams, Publisher, weights
from webagent_runtime.client import open_channel
from webagent_runtime.config import validate

# Before anything imports torch.
set_environment(EngineConfig())

REPOSITORY = Path(__file__).resolve().parents[3]
TOLERANCE = 0.15


# A replica is the same code above every backend: vLLM's turn is in `make test` whole, of transformers' what is its own.
QUICK_OF_TRANSFORMERS = (
    "test_scores_agree_with_what_was_sampled",
    "test_a_new_version_is_served_once_and_named_in_replies",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.endswith("[transformers]") and not item.name.startswith(QUICK_OF_TRANSFORMERS):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def model() -> Path:
    directory = REPOSITORY / DEFAULT_OUT
    prepare(directory)
    return directory


@pytest.fixture(scope="session")
def chat(model: Path) -> Chat:
    return Chat.load(model, "smollm2")


@pytest.fixture(scope="session")
def configure(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., InferenceConfig]:
    def make(**changes: Any) -> InferenceConfig:
        values: dict[str, Any] = {
            "server": {"port": 0},
            "admin": {"port": 0},
            "model": {"path": model},
            "engine": {"max_context": 1024, "max_sequences": 16, "cache_bytes": 256 << 20},
            "updates": {"staging": tmp_path_factory.mktemp("staging"), "retry_seconds": 0.1},
        }
        return validate(InferenceConfig, {**values, **changes}, source="test")

    return make


@dataclass(frozen=True)
class Served:
    """A replica and clients of it."""

    replica: Replica
    policy: inference_pb2_grpc.InferenceServiceAsyncStub
    admin: inference_pb2_grpc.InferenceAdminServiceAsyncStub

    async def generate(self, prompt: list[int], *, timeout: float = 100, **settings: Any) -> pb.GenerateResponse:
        minimum, purpose = settings.pop("min_weights_version", 0), settings.pop("purpose", pb.PURPOSE_UNSPECIFIED)
        sampling = pb.SamplingSettings(**{"temperature": 1.0, "max_tokens": 16, **settings})
        request = pb.GenerateRequest(
            request_id="test",
            prompt_token_ids=prompt,
            sampling=sampling,
            min_weights_version=minimum,
            purpose=purpose,
        )
        return await self.policy.Generate(request, timeout=timeout)

    async def score(self, prompt: list[int], token_ids: list[int]) -> pb.ScoreResponse:
        return await self.policy.Score(pb.ScoreRequest(prompt_token_ids=prompt, token_ids=token_ids), timeout=100)

    async def update(self, version: policy_pb2.PolicyVersion) -> pb.UpdateWeightsResponse:
        request = pb.UpdateWeightsRequest(
            version=version.version, uri=version.uri, manifest_digest=version.manifest_digest
        )
        return await self.admin.UpdateWeights(request, timeout=100)


@asynccontextmanager
async def served_by(config: InferenceConfig) -> AsyncIterator[Served]:
    async with started(config) as replica:
        policy, admin = open_channel(replica.server.address), open_channel(replica.admin.address)
        try:
            yield Served(
                replica,
                inference_pb2_grpc.InferenceServiceStub(policy),
                inference_pb2_grpc.InferenceAdminServiceStub(admin),
            )
        finally:
            await asyncio.gather(policy.close(), admin.close())


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractAsyncContextManager[Served]]:
    """A replica whose configuration is given; no model is needed for it."""

    def make(**values: Any) -> AbstractAsyncContextManager[Served]:
        fixed: dict[str, Any] = {
            "server": {"port": 0},
            "admin": {"port": 0},
            "updates": {"staging": tmp_path_factory.mktemp("staging")},
        }
        return served_by(validate(InferenceConfig, {**fixed, **values}, source="test"))

    return make


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["vllm", "transformers"])
async def served(request: pytest.FixtureRequest, configure: Callable[..., InferenceConfig]) -> AsyncIterator[Served]:
    async with served_by(configure(backend=request.param)) as replica:
        yield replica


@dataclass(frozen=True)
class Trained:
    """Weights and what they compute."""

    file: Path
    tensors: list[policy_pb2.TensorEntry]
    canary: policy_pb2.Canary


class Trainer:
    """Writes policy versions as the trainer does: perturbed weights, a manifest, a canary that it computed itself."""

    def __init__(self, model: Path, chat: Chat, directory: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32).eval()
        self._base = copy.deepcopy(self._model.state_dict())
        self._directory = directory
        self._prompt = chat.prompt([ChatMessage("user", "Describe the sea, the wind and the sky. " * 20)])
        self._trained: dict[float, Trained] = {}
        self._last = 0

    def publish(self, *, noise: float = 0.02, canary_of: float | None = None) -> policy_pb2.PolicyVersion:
        """A version whose weights differ from the base by noise; `canary_of` names the weights of its canary."""
        self._last += 1
        directory = self._directory / str(self._last)
        directory.mkdir()
        trained = self._train(noise)
        os.link(trained.file, directory / trained.file.name)
        canary = trained.canary if canary_of is None else self._train(canary_of).canary
        manifest = policy_pb2.PolicyManifest(
            version=self._last, step=self._last, phase="rl", tensors=trained.tensors, canaries=[canary]
        )
        return self.announce(directory, manifest)

    def announce(self, directory: Path, manifest: policy_pb2.PolicyManifest) -> policy_pb2.PolicyVersion:
        content = json.dumps(json_format.MessageToDict(manifest, preserving_proto_field_name=True)).encode()
        (directory / "manifest.json").write_bytes(content)
        return policy_pb2.PolicyVersion(
            version=manifest.version, uri=directory.as_uri(), manifest_digest=hashlib.sha256(content).hexdigest()
        )

    def manifest_of(self, version: policy_pb2.PolicyVersion) -> tuple[Path, policy_pb2.PolicyManifest]:
        directory = Path(version.uri.removeprefix("file://"))
        text = (directory / "manifest.json").read_text()
        return directory, json_format.Parse(text, policy_pb2.PolicyManifest())

    def _train(self, noise: float) -> Trained:
        """Weights of one kind are made once; versions link to their file."""
        if noise in self._trained:
            return self._trained[noise]
        import safetensors.torch
        import torch

        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, tensor in self._model.state_dict().items():
                if "down_proj" in name or "lm_head" in name:
                    change = noise * self._base[name].std() * torch.randn(tensor.shape, generator=generator)
                    tensor.copy_((self._base[name] + change).bfloat16())
        file = self._directory / f"{noise}" / "model-00001-of-00001.safetensors"
        file.parent.mkdir()
        safetensors.torch.save_file({name: t.bfloat16() for name, t in self._model.state_dict().items()}, file)
        self._trained[noise] = Trained(file, _entries(file), self._canary())
        return self._trained[noise]

    def _canary(self) -> policy_pb2.Canary:
        import torch

        ids = torch.tensor([self._prompt])
        with torch.inference_mode():
            greedy = self._model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
            tokens = greedy[0, len(self._prompt) :]
            logits = self._model(greedy, logits_to_keep=len(tokens) + 1).logits[0, :-1].float()
        logprobs = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0].tolist()
        return policy_pb2.Canary(
            prompt_token_ids=self._prompt, token_ids=tokens.tolist(), logprobs=logprobs, tolerance=TOLERANCE
        )


def _entries(file: Path) -> list[policy_pb2.TensorEntry]:
    content = file.read_bytes()
    return [
        policy_pb2.TensorEntry(
            name=span.name,
            file=file.name,
            dtype=span.dtype,
            shape=span.shape,
            sha256=hashlib.sha256(content[span.start : span.end]).hexdigest(),
        )
        for span in modeldir.tensor_spans(file)
    ]


@pytest.fixture(scope="session")
def trainer(model: Path, chat: Chat, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return Trainer(model, chat, tmp_path_factory.mktemp("policies"))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "versions")


@pytest.fixture
def bigrams(serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    base = tmp_path / "base"
    base.mkdir()
    (base / FILE).write_bytes(weights(0))

    async def start(config: Any, codec: Any) -> Bigrams:
        return Bigrams(config.directory)

    monkeypatch.setattr(core_module, "_start_backend", start)
    monkeypatch.setattr(core_module, "_codec", lambda _: ByteCodec("bigrams"))

    def make(**values: Any) -> Any:
        return serve(**{"backend": "transformers", "model": {"path": base}, **values})

    return make


@pytest_asyncio.fixture
async def small(bigrams: Callable[..., Any]) -> AsyncIterator[Served]:
    async with bigrams() as replica:
        yield replica
