"""Configuration of the evaluator."""

from __future__ import annotations

from pydantic import Field
from webagent_runtime.config import ClientConfig, Config, ServerConfig, TelemetryConfig


class EvaluatorConfig(Config):
    """Everything the evaluator can be told; environment variables begin with WEBAGENT_EVALUATOR."""

    server: ServerConfig = Field(default=ServerConfig(port=50053), description="Where the service listens.")
    env: ClientConfig = Field(default=ClientConfig(), description="How sessions are reached; scope env.probe.")
    telemetry: TelemetryConfig = Field(default=TelemetryConfig(), description="Logs and traces.")
    evaluate_timeout_seconds: float = Field(
        default=20.0, gt=0, le=600, description="Longest time one evaluation may take; past it, it is INVALID."
    )
    max_environments: int = Field(
        default=64, ge=1, le=4096, description="Env replicas connected to at once; more wait for an idle connection."
    )
