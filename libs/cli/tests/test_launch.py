"""Launch commands and memory of the paper-scale recipes."""

from pathlib import Path

import pytest
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.estimate import GIB, estimate, trainer_parts
from webagent_cli.launch import launch_commands
from webagent_cli.train import train
from webagent_runtime.config import ConfigError

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def recipe(name: str = "webarena-lite-qwen2.5-3b", **settings: object) -> LoopConfig:
    return load_loop(CONFIGS / f"{name}.yaml", settings)


def device(config: LoopConfig) -> dict[str, float]:
    assert config.model.shape is not None
    return {part.part.strip(): part.device for part in trainer_parts(config.model.shape, config)}


def test_two_machines_get_a_command_each_that_differs_in_its_rank() -> None:
    commands = list(launch_commands(recipe(**{"deepspeed.nodes": 2})))
    trainers = [command for command in commands if "torchrun" in command]
    assert len(trainers) == 2
    assert all("--nnodes 2" in command and "--nproc-per-node 8" in command for command in trainers)
    assert [f"--node-rank {node}" in command for node, command in enumerate(trainers)] == [True, True]


def test_one_rank_needs_no_torchrun() -> None:
    commands = list(launch_commands(load_loop(CONFIGS / "quick.yaml")))
    assert commands[0].startswith("nats-server")
    assert commands[-1] == "webagent-trainer --config config/trainer.yaml"


def test_several_machines_are_not_started_from_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--dry-run prints"):
        train(CONFIGS / "quick.yaml", runs=tmp_path, name=None, resume=False, dry_run=False,
              settings=["deepspeed.nodes=2"])  # fmt: skip


@pytest.mark.parametrize("name", ["webarena-lite-qwen2.5-3b", "webarena-lite-llama3.1-8b"])
def test_a_paper_scale_rank_fits_its_80_gb(name: str) -> None:
    config = recipe(name)
    assert config.model.shape is not None
    assert estimate(config.model.shape, config)[0].device * GIB < 80e9


def test_what_zero_3_shards_shrinks_with_the_ranks_and_the_reference_does_not() -> None:
    one, two = device(recipe()), device(recipe(**{"deepspeed.nodes": 2}))
    assert two["weights"] == one["weights"] / 2
    assert two["gradients"] == one["gradients"] / 2
    assert one["optimizer"] == two["optimizer"] == 0.0
    assert two["reference policy"] == one["reference policy"] > one["weights"]
    assert device(recipe(**{"rl.kl_coefficient": 0.0}))["reference policy"] == 0.0


def test_a_parameter_takes_eighteen_bytes_on_a_single_rank() -> None:
    config = recipe(**{"deepspeed.ranks": 1, "deepspeed.zero_stage": 1, "deepspeed.offload_optimizer": False})
    assert config.model.shape is not None
    parts = device(config)
    kept = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    assert kept * GIB == pytest.approx(18 * config.model.shape.parameters)
