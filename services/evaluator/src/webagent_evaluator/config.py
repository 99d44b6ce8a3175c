"""Configuration of the evaluator."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator
from webagent_runtime.config import ClientConfig, Config, ServerConfig, TelemetryConfig


class JudgeConfig(Config):
    """The language model that is asked where a rule cannot be decided otherwise."""

    endpoint: str = Field(
        default="",
        pattern=r"^((https?|grpc)://.+)?$",
        description="https://host/v1: an OpenAI-compatible API; grpc://host:port: our inference contract. Empty: none.",
    )
    model: str = Field(
        default="",
        description="Name of the model; an OpenAI-compatible API needs one. Empty: any that a grpc:// one serves.",
    )
    api_key_file: Path | None = Field(default=None, description="File with the key of an OpenAI-compatible API.")
    client: ClientConfig = Field(default=ClientConfig(), description="TLS and token of a grpc:// endpoint.")
    timeout_seconds: float = Field(default=20.0, gt=0, le=600, description="Longest time one attempt may take.")
    attempts: int = Field(default=3, ge=1, le=10, description="Attempts at one question while the judge is down.")
    max_tokens: int = Field(default=768, ge=1, le=32_768, description="Longest reply.")

    @model_validator(mode="after")
    def _names_a_model(self) -> JudgeConfig:
        if self.endpoint.startswith("http") and not self.model:
            raise ValueError("judge.model must name the model that judge.endpoint serves")
        return self


class WebArenaConfig(Config):
    """How WebArena's rules are judged, whatever the suites say."""

    strict: bool = Field(
        default=False, description="Judge rightly where the published evaluators are known to be wrong."
    )
    unanswered_is_na: bool = Field(
        default=False,
        description='Judge an episode that gave no answer as if it had answered "N/A", as some published results were.',
    )
    shop_username: str = Field(default="admin", description="Administrator of the shop, for rules that ask its API.")
    shop_password: str = Field(default="admin1234", description="The administrator's password; WebArena's by default.")


class EvaluatorConfig(Config):
    """Everything the evaluator can be told; environment variables begin with WEBAGENT_EVALUATOR."""

    server: ServerConfig = Field(default=ServerConfig(port=50053), description="Where the service listens.")
    env: ClientConfig = Field(default=ClientConfig(), description="How sessions are reached; scope env.probe.")
    judge: JudgeConfig = Field(
        default=JudgeConfig(), description="Who is asked about answers that may be worded freely."
    )
    webarena: WebArenaConfig = Field(default=WebArenaConfig(), description="How WebArena's rules are judged.")
    telemetry: TelemetryConfig = Field(default=TelemetryConfig(), description="Logs and traces.")
    evaluate_timeout_seconds: float = Field(
        default=50.0, gt=0, le=600, description="Longest time one evaluation may take; past it, it is INVALID."
    )
    max_environments: int = Field(
        default=64, ge=1, le=4096, description="Env replicas connected to at once; more wait for an idle connection."
    )
