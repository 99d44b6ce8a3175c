"""Configuration of the inference service. Read before torch or an engine is imported."""

import os
import socket
from pathlib import Path
from typing import Literal

import pydantic
from pydantic import Field
from webagent_runtime.config import Config, QueueConfig, ServerConfig, TelemetryConfig

GIB = 1024**3


class ModelConfig(Config):
    """The base model: what is served until a policy version arrives."""

    path: Path = Field(description="model directory: config, tokenizer with chat template, safetensors")
    id: str | None = Field(default=None, description="name in ModelIdentity; unset: the directory's name")

    @property
    def name(self) -> str:
        """The name that replies carry."""
        return self.id or self.path.resolve().name


class EngineConfig(Config):
    """How the backend runs the model. Fields that one backend alone uses say so."""

    max_context: int = Field(default=4096, ge=16, description="longest prompt and reply together, in tokens")
    max_sequences: int = Field(default=32, ge=1, description="sequences decoded at the same time")
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="what to compute in; auto: bfloat16 on GPUs and on CPUs that multiply it in tiles"
    )
    max_batched_tokens: int = Field(default=4096, ge=128, description="tokens of one engine step (vllm)")
    cache_bytes: int = Field(default=GIB, ge=1 << 20, description="KV cache on CPU, bytes (vllm)")
    gpu_memory_share: float = Field(default=0.9, gt=0, le=1, description="share of a GPU's memory to use (vllm)")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs that share one replica (vllm)")
    threads: int | None = Field(default=None, ge=1, description="CPU threads; unset: all cores that may be used")
    eager: bool = Field(default=True, description="run without compiled graphs; false is faster on GPU (vllm)")
    start_seconds: float = Field(default=600.0, gt=0, description="bound on loading the model")

    @property
    def thread_count(self) -> int:
        """Threads to compute with."""
        return self.threads or len(os.sched_getaffinity(0))


class LimitsConfig(Config):
    """What a replica takes on before it refuses."""

    max_requests: int = Field(default=256, ge=1, description="requests in work or waiting; more: QUEUE_FULL")
    request_seconds: float = Field(default=600.0, gt=0, description="bound on one call, whatever its deadline")
    retry_seconds: float = Field(default=1.0, gt=0, description="retry advice of QUEUE_FULL and VERSION_NOT_READY")


class UpdateConfig(Config):
    """How new weights are applied."""

    staging: Path = Field(default=Path(".cache/inference"), description="where remote versions are downloaded to")
    update_seconds: float = Field(default=300.0, gt=0, description="bound on one update")
    attempts: int = Field(default=3, ge=1, description="tries of a version from the queue whose files do not load")
    retry_seconds: float = Field(default=2.0, gt=0, description="pause between these tries")


class InferenceConfig(Config):
    """The whole service."""

    server: ServerConfig = ServerConfig(port=50052)
    admin: ServerConfig = ServerConfig(port=50062)
    telemetry: TelemetryConfig = TelemetryConfig()
    replica: str | None = Field(default=None, description="this replica's name; unset: host and port")
    model: ModelConfig
    backend: Literal["vllm", "transformers"] = Field(default="vllm", description="what computes the policy")
    engine: EngineConfig = EngineConfig()
    limits: LimitsConfig = LimitsConfig()
    updates: UpdateConfig = UpdateConfig()
    queue: QueueConfig | None = Field(default=None, description="where policy versions are announced; unset: alone")

    @pydantic.model_validator(mode="after")
    def _ports_differ(self) -> "InferenceConfig":
        if self.server.port and self.server.port == self.admin.port:
            raise ValueError(f"server.port and admin.port are both {self.server.port}; they must differ")
        return self

    def replica_name(self, port: int) -> str:
        """Unique among the replicas that watch one queue."""
        return self.replica or f"{socket.gethostname()}-{port}"
