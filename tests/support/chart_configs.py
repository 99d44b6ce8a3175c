"""Rendered configurations, read as the services read them."""

from __future__ import annotations

from typing import Any

import charts
from pydantic import BaseModel
from webagent_env.config import EnvConfig
from webagent_evaluator.config import EvaluatorConfig
from webagent_inference.config import InferenceConfig
from webagent_rollout.config import RolloutConfig
from webagent_runtime.config import validate
from webagent_trainer.config import TrainerConfig

MODELS: dict[str, type[BaseModel]] = {
    "env": EnvConfig,
    "evaluator": EvaluatorConfig,
    "inference": InferenceConfig,
    "rollout": RolloutConfig,
    "trainer": TrainerConfig,
}


def services(rendered: charts.Render) -> list[str]:
    """The services that a render configures."""
    return [
        each["metadata"]["labels"]["app.kubernetes.io/component"]
        for each in rendered.own()
        if each["kind"] == "ConfigMap" and "config.json" in each["data"]
    ]


def read(rendered: charts.Render, service: str) -> Any:
    """The configuration of a service, checked by its own model."""
    return validate(MODELS[service], charts.configuration(rendered, service), source=rendered.name)
