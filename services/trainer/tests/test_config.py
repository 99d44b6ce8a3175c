"""Contradicting values are refused when the configuration is read, each with one line that says what to change."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from webagent_runtime.config import ConfigError
from webagent_trainer.config import RunConfig, TrainerConfig, parse_run

BASE: dict[str, Any] = {
    "run_directory": "runs/one",
    "model": "models/tiny",
    "rl": {"suite": "miniwob", "tasks": ["a"], "seeds": {"first": 100, "count": 50}, "groups": 4},
}


def parse(**rl: Any) -> RunConfig:
    return parse_run(yaml.safe_dump(BASE | {"rl": BASE["rl"] | rl}))


@pytest.mark.parametrize(
    ("rl", "message"),
    [
        ({"sampling": {"top_p": 0.9}}, "top_p other than 1"),
        ({"sampling": {"top_k": 20}}, "top_k changes the sampled distribution"),
        ({"sampling": {"min_p": 0.1}}, "min_p changes"),
        ({"sampling": {"repetition_penalty": 1.1}}, "repetition_penalty changes"),
        ({"sampling": {"temperature": 0.7}}, "needs processed log-probabilities"),
        ({"sampling": {"temperature": 0.0}}, "greater than 0"),
        ({"group_size": 1}, "greater than or equal to 2"),
        ({"clip_low": 1.0}, "less than 1"),
        ({"held_out_seeds": {"first": 149, "count": 10}}, "must never be trained on"),
        ({"seeds": {"first": 0, "count": 3}}, "widen the seeds"),
        ({"tasks": ["a", "a"]}, "given twice"),
        ({"tasks": []}, "at least 1"),
        ({"normalizer": "mean"}, "turn-mean"),
        ({"klcoefficient": 0.1}, "kl_coefficient"),
        ({"method": {"name": "ppo"}}, "filtered-bc"),
        ({"method": {"name": "awr", "decay": 0.5}}, "decay"),
        ({"official_release": True, "agent": {"compress_context": False}}, "set agent.compress_context"),
    ],
)
def test_a_contradiction_is_refused_in_one_line(rl: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse(**rl)
    assert "\n" not in str(error.value)


def test_the_default_method_is_the_papers() -> None:
    rl = parse().rl
    assert rl is not None
    assert (rl.method.name, rl.official_release, rl.stored, rl.normalizer) == ("m-grpo", False, None, "turn-mean")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run_directory: runs/one\nmodel: m", "neither bc nor rl"),
        (yaml.safe_dump(BASE | {"pause_between_phases": True}), "bc is unset"),
        ("- a list", "must be a mapping"),
        ("{", "not YAML"),
        (yaml.safe_dump(BASE | {"publish": {"keep": 1}}), "greater than or equal to 2"),
        (yaml.safe_dump(BASE | {"deepspeed": {"zero_stage": 0}}), "1, 2 or 3"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_run(text)


def test_a_tempered_sampler_with_processed_log_probabilities_is_accepted() -> None:
    config = parse(sampling={"temperature": 0.7, "logprobs": "processed"})
    assert config.rl is not None
    assert config.rl.sampling.temperature == 0.7


def test_the_paper_is_the_default() -> None:
    rl = parse().rl
    assert rl is not None
    assert (rl.clip_low, rl.clip_high, rl.kl_coefficient, rl.epochs) == (0.2, 0.2, 0.001, 1)
    assert (rl.optimizer.learning_rate, rl.sampling.temperature, rl.normalizer) == (1e-6, 1.0, "turn-mean")
    assert rl.minibatch_rows is None


def test_without_a_run_the_trainer_waits_for_one() -> None:
    config = TrainerConfig()
    assert config.run is None
    assert config.server.port == 50055


def test_paths_are_paths() -> None:
    assert parse().run_directory == Path("runs/one")
