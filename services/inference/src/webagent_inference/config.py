"""Configuration of the inference service. Read before torch or an engine is imported."""

import os
import re
import socket
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field
from webagent_runtime.config import Config, QueueConfig, ServerConfig, TelemetryConfig, TlsConfig

GIB = 1024**3
BYTE_CONTEXT = 262_144

BackendName = Literal["vllm", "vllm-grpc", "openai", "transformers", "scripted"]


class ModelConfig(Config):
    """The base model: what is served until a policy version arrives."""

    path: Path | None = Field(
        default=None,
        description="model directory: config, tokenizer with chat template, safetensors (not where the backend is "
        "another server, which has its own); unset: text travels as bytes, which suits openai and scripted",
    )
    id: str | None = Field(default=None, description="name in ModelIdentity; unset: the directory's name")


class EngineConfig(Config):
    """How the backend runs the model. Fields that one backend alone uses say so."""

    max_context: int = Field(default=4096, ge=16, description="longest prompt and reply together, in tokens")
    max_sequences: int = Field(default=32, ge=1, description="sequences decoded at the same time")
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="what to compute in; auto: bfloat16 on GPUs and on CPUs that multiply it in tiles"
    )
    max_batched_tokens: int = Field(default=4096, ge=128, description="tokens of one engine step (vllm)")
    prefix_cache: bool = Field(default=True, description="keep what prompts share between requests (vllm)")
    chunked_prefill: bool = Field(default=True, description="spread a long prompt over several steps (vllm)")
    cache_bytes: int = Field(default=GIB, ge=1 << 20, description="KV cache on CPU, bytes (vllm)")
    gpu_memory_share: float = Field(default=0.9, gt=0, le=1, description="share of a GPU's memory to use (vllm)")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs that share one replica (vllm)")
    threads: int | None = Field(default=None, ge=1, description="CPU threads; unset: all cores that may be used")
    eager: bool = Field(default=True, description="run without compiled graphs; false is faster on GPU (vllm)")
    start_seconds: float = Field(default=600.0, gt=0, description="bound on loading the model")
    restarts: int = Field(default=3, ge=0, description="times per hour that a dead engine is started again in place")

    @property
    def thread_count(self) -> int:
        """Threads to compute with."""
        return self.threads or len(os.sched_getaffinity(0))


class OpenAiConfig(Config):
    """An OpenAI-compatible endpoint to sample from.

    Without model.path conversations go to its chat completions, as text. With model.path, the tokenizer of the model
    that it serves, prompts go to its completions as token ids; endpoints that answer with token ids and
    log-probabilities (vLLM, SGLang, llama.cpp) can then be trained from.
    """

    base_url: str = Field(default="http://127.0.0.1:8000/v1", description="up to and including the version")
    model: str = Field(default="", description="the model's name there; empty: the first one that it lists")
    api_key_file: Path | None = Field(default=None, description="file with the key; unset: none is sent")
    connect_seconds: float = Field(default=10.0, gt=0, description="bound on connecting")
    omit: list[str] = Field(default=[], description="fields that the endpoint refuses, such as seed or temperature")
    extra: dict[str, Any] = Field(default={}, description="fields to send besides, such as reasoning_effort")
    tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="what the endpoint calls the bound on a reply"
    )


class RemoteConfig(Config):
    """A vLLM that serves its own gRPC (`vllm serve --grpc`), reached without TLS, which it does not have."""

    target: str = Field(default="127.0.0.1:50070", description="host:port")
    connect_seconds: float = Field(default=30.0, gt=0, description="bound on its first answer")
    logprobs: Literal["raw", "processed"] = Field(
        default="raw", description="the --logprobs-mode that it was started with; raw is vLLM's default"
    )


class ScriptRule(Config):
    """Replies to the conversations whose last message the pattern is found in."""

    pattern: str = Field(description="regular expression")
    replies: list[str] = Field(min_length=1, description="one is drawn; at temperature 0 the commonest")


class ScriptConfig(Config):
    """What the scripted policy says."""

    rules: list[ScriptRule] = Field(default=[], description="the first that fits decides")
    replies: list[str] = Field(default=["OK."], min_length=1, description="when no rule fits")
    token_seconds: float = Field(default=0.0, ge=0, description="time that a token takes, to play a slow model")

    @pydantic.model_validator(mode="after")
    def _patterns_compile(self) -> "ScriptConfig":
        for rule in self.rules:
            try:
                re.compile(rule.pattern)
            except re.error as error:
                raise ValueError(f"{rule.pattern!r} is not a regular expression: {error}") from None
        return self


class FaceConfig(Config):
    """The OpenAI-compatible face: chat completions over HTTP, for other agent frameworks."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=50072, ge=0, le=65535, description="0: any free port")
    tls: TlsConfig | None = Field(default=None, description="unset: plaintext")
    tokens_file: Path | None = Field(
        default=None, description="YAML: bearer token to its scopes, of which 'inference' is needed; unset: no tokens"
    )
    max_body_bytes: int = Field(default=16 << 20, ge=1024, description="bound on one request")


class LimitsConfig(Config):
    """What a replica takes on before it refuses."""

    max_requests: int = Field(
        default=256, ge=1, description="requests of one purpose in work or waiting; more: QUEUE_FULL"
    )
    request_seconds: float = Field(default=600.0, gt=0, description="bound on one call, whatever its deadline")
    retry_seconds: float = Field(default=1.0, gt=0, description="retry advice of QUEUE_FULL and VERSION_NOT_READY")


class UpdateConfig(Config):
    """How new weights are applied."""

    staging: Path = Field(default=Path(".cache/inference"), description="where remote versions are downloaded to")
    update_seconds: float = Field(default=300.0, gt=0, description="bound on one update")
    in_flight: Literal["continue", "finish"] = Field(
        default="continue",
        description="requests in flight: continue under the new weights, their tokens kept; or finish under the old "
        "ones, which holds the update up",
    )
    finish_seconds: float = Field(default=60.0, gt=0, description="then those that have not finished continue")
    attempts: int = Field(default=3, ge=1, description="tries of a version from the queue whose files do not load")
    retry_seconds: float = Field(default=2.0, gt=0, description="pause between these tries")


class InferenceConfig(Config):
    """The whole service."""

    server: ServerConfig = ServerConfig(port=50052)
    admin: ServerConfig = ServerConfig(port=50062)
    telemetry: TelemetryConfig = TelemetryConfig()
    replica: str | None = Field(default=None, description="this replica's name; unset: host and port")
    model: ModelConfig = ModelConfig()
    backend: BackendName = Field(default="vllm", description="what computes the policy")
    engine: EngineConfig = EngineConfig()
    openai: OpenAiConfig = OpenAiConfig()
    remote: RemoteConfig = RemoteConfig()
    script: ScriptConfig = ScriptConfig()
    face: FaceConfig | None = Field(default=None, description="OpenAI-compatible HTTP; unset: not served")
    limits: LimitsConfig = LimitsConfig()
    updates: UpdateConfig = UpdateConfig()
    queue: QueueConfig | None = Field(default=None, description="where policy versions are announced; unset: alone")

    @pydantic.model_validator(mode="after")
    def _ports_differ(self) -> "InferenceConfig":
        if self.server.port and self.server.port == self.admin.port:
            raise ValueError(f"server.port and admin.port are both {self.server.port}; they must differ")
        return self

    @pydantic.model_validator(mode="after")
    def _the_backend_has_what_it_needs(self) -> "InferenceConfig":
        if self.model.path is None and self.backend not in {"openai", "scripted"}:
            raise ValueError(f"the backend {self.backend} needs model.path")
        if self.model.path is not None and self.backend == "scripted":
            raise ValueError("the backend scripted takes no model.path")
        if self.queue is not None and not self.loads_weights:
            raise ValueError(f"the backend {self.backend} takes no new weights, so it cannot follow a queue")
        return self

    @property
    def loads_weights(self) -> bool:
        """Whether the backend computes the model itself."""
        return self.backend in {"vllm", "transformers"}

    @property
    def directory(self) -> Path:
        """The model directory, where there must be one."""
        if self.model.path is None:
            raise ValueError("model.path is unset")
        return self.model.path

    @property
    def model_id(self) -> str:
        """The name that replies carry."""
        path = self.model.path
        return self.model.id or (path.resolve().name if path is not None else self.openai.model or self.backend)

    @property
    def max_context(self) -> int:
        """Longest prompt and reply together; where tokens are bytes the default is a hundred pages of text."""
        if self.model.path is None and "max_context" not in self.engine.model_fields_set:
            return BYTE_CONTEXT
        return self.engine.max_context

    def replica_name(self, port: int) -> str:
        """Unique among the replicas that watch one queue."""
        return self.replica or f"{socket.gethostname()}-{port}"
