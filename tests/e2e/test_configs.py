"""Every shipped configuration becomes files that each service accepts."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from webagent_cli.config import PortsConfig, load_loop
from webagent_cli.runs import Run
from webagent_cli.settings import service_settings, trainer_run
from webagent_env.config import EnvConfig
from webagent_evaluator.config import EvaluatorConfig
from webagent_inference.config import InferenceConfig
from webagent_rollout.config import RolloutConfig
from webagent_runtime.config import Config, validate
from webagent_trainer.config import RunConfig, TrainerConfig

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
MODELS: dict[str, type[Config]] = {
    "env": EnvConfig,
    "inference": InferenceConfig,
    "evaluator": EvaluatorConfig,
    "rollout": RolloutConfig,
    "trainer": TrainerConfig,
}


def written(values: dict[str, Any]) -> dict[str, Any]:
    """As the service reads it back from its file."""
    read: dict[str, Any] = yaml.safe_load(yaml.safe_dump(values))
    return read


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_service_accepts_what_the_loop_implies(path: Path, tmp_path: Path) -> None:
    config = load_loop(path)
    settings = service_settings(Run(tmp_path), config, PortsConfig())
    assert set(settings) == set(MODELS)
    for service, values in settings.items():
        validate(MODELS[service], written(values), source=service)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_trainer_accepts_the_run(path: Path, tmp_path: Path) -> None:
    config = load_loop(path)
    run = validate(RunConfig, written(trainer_run(Run(tmp_path), config)), source="run")
    assert run.rl is not None
    assert run.rl.agent.prompt == config.agent.prompt
    assert run.rl.sampling.max_tokens == config.agent.max_reply_tokens


@pytest.mark.parametrize("variant", ["r1", "r1-zero", "r1-cot"])
def test_a_variant_without_cloning_has_no_cloning(variant: str, tmp_path: Path) -> None:
    config = load_loop(ROOT / "configs" / "quick.yaml", {"variant": variant, "agent.thinking": True})
    run = validate(RunConfig, written(trainer_run(Run(tmp_path), config)), source="run")
    assert (run.bc is None) == (variant == "r1-zero")
    assert run.pause_between_phases == (variant != "r1-zero")
    if run.bc is not None:
        assert ("cot" in run.bc.demonstrations.name) == (variant == "r1-cot")


def test_a_services_own_settings_are_laid_over(tmp_path: Path) -> None:
    overrides = {"stack.env": {"sessions": {"max_steps": 7}}, "stack.trainer": {"run": {"checkpoints": {"every": 2}}}}
    config = load_loop(ROOT / "configs" / "quick.yaml", overrides)
    settings = service_settings(Run(tmp_path), config, PortsConfig())
    assert settings["env"]["sessions"] == {"capacity": config.eval.concurrency, "max_steps": 7}
    assert "run" not in settings["trainer"]
    assert trainer_run(Run(tmp_path), config)["checkpoints"] == {"every": 2}
