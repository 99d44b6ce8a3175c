"""The service's configuration."""

from __future__ import annotations

import pytest
from webagent_inference.config import InferenceConfig
from webagent_runtime.config import ConfigError, load


def test_a_model_path_is_enough() -> None:
    config = load(InferenceConfig, None, env_prefix="NONE", overrides={"model.path": "models/policy"})
    assert (config.server.port, config.admin.port, config.backend) == (50052, 50062, "vllm")
    assert config.queue is None
    assert config.model_id == "policy"
    assert config.engine.thread_count >= 1


def test_the_queue_and_the_backend_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_TEST__QUEUE__URL", "nats://queue:4222")
    monkeypatch.setenv("INFERENCE_TEST__BACKEND", "transformers")
    config = load(InferenceConfig, None, env_prefix="INFERENCE_TEST", overrides={"model.path": "m"})
    assert config.queue is not None
    assert config.queue.url == "nats://queue:4222"
    assert config.backend == "transformers"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("engine.max_contxt", "5", "engine.max_context"),
        ("backend", "llama", "backend"),
        ("admin.port", "50052", "must differ"),
        ("engine.max_context", "1", "engine.max_context"),
    ],
)
def test_wrong_values_are_refused_in_one_line(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load(InferenceConfig, None, env_prefix="NONE", overrides={"model.path": "m", key: value})
    assert "\n" not in str(refused.value)
