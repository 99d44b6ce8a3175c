"""The configuration language: what is shipped loads, what cannot be meant is refused in one line."""

from pathlib import Path

import pytest
from webagent_cli.config import LoopConfig, SeedRange, load_loop, parse_settings
from webagent_cli.offers import check_offers
from webagent_runtime.config import ConfigError

ROOT = Path(__file__).resolve().parents[3]
QUICK = ROOT / "configs" / "quick.yaml"
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path: Path) -> None:
    check_offers(load_loop(path))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_held_out_seeds_are_never_trained_on(path: Path) -> None:
    config = load_loop(path)
    held_out = set(config.eval.seeds.seeds())
    assert held_out.isdisjoint(config.demos.seeds.seeds())
    assert held_out.isdisjoint(config.rl.seeds.seeds())


def test_the_quick_run_is_large_enough_to_judge() -> None:
    config = load_loop(QUICK)
    assert len(config.tasks.ids) >= 8
    assert config.eval.seeds.count >= 50
    assert not config.agent.thinking
    assert config.agent.max_unusable_replies == 5
    assert config.eval.temperature == 1.0


def test_the_resolved_configuration_means_the_same(tmp_path: Path) -> None:
    config = load_loop(QUICK, {"rl.iterations": 3})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert load_loop(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eval.seeds={first: 100000, count: 50}", "overlap rl.seeds"),
        ("eval.seeds={first: 200001, count: 50}", "overlap demos.seeds"),
        ("eval.zero_shot_seeds=51", "more than eval.seeds.count"),
        ("tasks.ids=[click-button, click-button]", "given twice: click-button"),
        ("agent.promt=compact", "nearest known key is agent.prompt"),
        ("rl.group_size=1", "greater than or equal to 2"),
        ("variant=r1-cot", "set agent.thinking"),
    ],
)
def test_what_cannot_be_meant_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_loop(QUICK, parse_settings([setting]))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tasks.ids=[click-buton]", "unknown task 'click-buton': did you mean 'click-button'"),
        ("agent.prompt=compat", "unknown prompt 'compat': did you mean 'compact'"),
        ("rl.method={name: ppo}", "trainer: rl.method.*'m-grpo'"),
        ("rl.method={name: awr, beta: 1}", "rl.method.*beta"),
        ("stack.trainer={run: {rl: {official_release: true, method: {name: awr}}}}", "belongs to m-grpo"),
    ],
)
def test_what_no_service_offers_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_offers(load_loop(QUICK, parse_settings([setting])))


def test_seed_ranges_overlap_only_if_they_share_a_seed() -> None:
    assert SeedRange(first=0, count=5).overlaps(SeedRange(first=4, count=1))
    assert not SeedRange(first=0, count=5).overlaps(SeedRange(first=5, count=5))


def test_the_knobs_of_training_are_a_decision() -> None:
    knobs = {name: sorted(LoopConfig.model_fields[name].annotation.model_fields) for name in ("agent", "bc", "eval")}
    assert knobs == {
        "agent": [
            "compress_context",
            "max_observation_bytes",
            "max_reply_tokens",
            "max_turns",
            "max_unusable_replies",
            "omit_attributes",
            "prompt",
            "thinking",
        ],
        "bc": ["batch_rows", "epochs", "held_out_share", "learning_rate", "patience"],
        "eval": [
            "attempts",
            "concurrency",
            "episode_seconds",
            "greedy",
            "max_equal_actions",
            "max_turns",
            "seeds",
            "temperature",
            "zero_shot_seeds",
        ],
    }
