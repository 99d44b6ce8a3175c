"""The methods beside M-GRPO: their formulas by hand, and that each teaches a tiny model to prefer what succeeded."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from webagent_runtime.config import validate
from webagent_trainer.advantages import awr_weights, digirl_advantages, webrl_advantages
from webagent_trainer.batches import LearningRow
from webagent_trainer.chance import seeded
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig, RlConfig
from webagent_trainer.crew import Crew
from webagent_trainer.lineage import Lineage
from webagent_trainer.loss import kl_fit_loss
from webagent_trainer.method_config import ValueConfig
from webagent_trainer.methods import Method, method_of
from webagent_trainer.replay import Replay
from webagent_trainer.rows import Episode, Row
from webagent_trainer.stages import Stages
from webagent_trainer.testing import GOOD
from webagent_trainer.update import LiveGroup
from webagent_trainer.values import ValueHeads

BAD = 9
NAMES = ("filtered-bc", "awr", "digirl", "webrl")


def config(name: str, **settings: Any) -> RlConfig:
    values = {
        "suite": "toy",
        "tasks": ["a"],
        "seeds": {"first": 0, "count": 100},
        "epochs": 2,
        "minibatch_rows": 4,
        "optimizer": {"learning_rate": 3e-3},
        "method": {"name": name, **settings},
    }
    return validate(RlConfig, values, source="test")


def episode(reward: float, *turns: tuple[tuple[int, ...], int]) -> Episode:
    rows = tuple(Row(context, (token, token), (-1.0, -1.0), (0, 0)) for context, token in turns)
    return Episode(f"e{reward}", reward, rows, (2,) * len(rows))


def groups() -> list[LiveGroup]:
    """Two turns each; whoever says GOOD succeeds."""
    made = []
    for start in (10, 20):
        prompts = [tuple(range(start, start + 6)), tuple(range(start + 1, start + 9))]
        good = episode(1.0, (prompts[0], GOOD), (prompts[1], GOOD))
        bad = episode(0.0, (prompts[0], BAD), (prompts[1], BAD))
        made.append(LiveGroup("a", (good, bad, good, bad)))
    return made


def preference(crew: Crew) -> float:
    """How much more likely the good replies are than the bad ones."""
    rows = {good: [LearningRow(r.context, r.reply, 1.0) for g in groups() for e in g.episodes
                   if (e.reward > 0) == good for r in e.rows] for good in (True, False)}  # fmt: skip
    found = {good: sum(map(sum, crew.logprobs(of))) / len(of) for good, of in rows.items()}
    return found[True] - found[False]


def opened(crew: Crew, model: Path, name: str, **settings: Any) -> Method:
    crew.begin(DeepSpeedConfig(threads=1, pack_tokens=256, bf16=False))
    crew.open(str(model), None, OptimizerConfig(learning_rate=3e-3), 1.0)
    return method_of(crew, config(name, **settings), seed=3)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_teaches_to_prefer_what_succeeded(crew: Crew, tiny_model: Path, tmp_path: Path, name: str) -> None:
    method = opened(crew, tiny_model, name)
    before = preference(crew)
    assert method.takes([1.0, 1.0])
    for iteration in range(4):
        metrics = method.update(groups(), Lineage(), seeded("test", iteration), Stages(), iteration=1)
    assert preference(crew) > before + 0.5
    assert metrics["steps"] > 0
    assert 0 < metrics["rows_share"] <= 1.5
    method.save(tmp_path)
    again = method_of(crew, config(name), seed=8)
    again.restore(tmp_path)
    chances = [seeded("more"), seeded("more")]
    (rows, numbers), (others, other_numbers) = (
        m._weighted([e for g in groups() for e in g.episodes], chance)  # type: ignore[attr-defined]
        for m, chance in zip((method, again), chances, strict=True)
    )
    assert numbers == other_numbers
    assert rows == others


def test_without_a_success_filtered_cloning_takes_no_step(crew: Crew, tiny_model: Path) -> None:
    method = opened(crew, tiny_model, "filtered-bc")
    lost = [LiveGroup("a", (episode(0.0, ((3, 4), BAD)),))]
    assert method.update(lost, Lineage(), seeded("test"), Stages(), iteration=1)["steps"] == 0


def test_replayed_rows_are_those_that_the_policy_half_knows(crew: Crew, tiny_model: Path) -> None:
    bounds = {"least_confidence": 0.0, "most_confidence": 1.0, "replay_share": 0.5}
    method = opened(crew, tiny_model, "webrl", **bounds)
    assert method.update(groups(), Lineage(), seeded("one"), Stages(), iteration=1)["replayed"] == 0
    second = method.update(groups(), Lineage(), seeded("two"), Stages(), iteration=1)
    assert second["replayed"] > 0
    assert second["rows"] == second["replayed"] * 3
    knows_by_heart = opened(crew, tiny_model, "webrl", least_confidence=0.999, most_confidence=1.0)
    for number in range(2):
        last = knows_by_heart.update(groups(), Lineage(), seeded(number), Stages(), iteration=1)
    assert last["replayed"] == 0


def test_advantages_by_hand() -> None:
    values = [0.2, 0.5, 0.8]
    assert awr_weights(1.0, values, temperature=0.5, cap=3.0) == pytest.approx([3.0, math.exp(1.0), math.exp(0.4)])
    # lambda 0.5: g = 0.25, 0.5, 1.
    assert digirl_advantages(1.0, values, decay=0.5) == pytest.approx([0.25 + 0.75 * 0.3, 0.5 + 0.5 * 0.3, 1.0])
    assert digirl_advantages(0.0, values, decay=0.5) == pytest.approx([0.3, 0.3, -0.8])
    # gamma 0.9: returns 0.81, 0.9, 1; the last turn also earns r itself.
    assert webrl_advantages(1.0, values, discount=0.9, cost=0.05) == pytest.approx([1.0, 1.0, 1.0])
    assert webrl_advantages(0.0, values, discount=0.9, cost=0.05) == pytest.approx([0.25, 0.25, -0.85])


@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(-1, 1), st.floats(0.1, 1)), min_size=1, max_size=5),
    st.floats(0.5, 5.0),
)
def test_the_fit_under_kl_is_that_of_the_formula(turns: list[tuple[int, float, float]], strength: float) -> None:
    chance = seeded("fit", len(turns))
    lengths = [length for length, _, _ in turns]
    new = [chance.uniform(-3, -0.1) for _ in range(sum(lengths))]
    reference = [chance.uniform(-3, -0.1) for _ in new]
    value, gradient, place = 0.0, [], 0
    for length, advantage, weight in turns:
        part = range(place, place + length)
        place += length
        error = strength * sum(new[i] - reference[i] for i in part) / length - advantage
        value += weight * (error * error / 2 if abs(error) <= 1 else abs(error) - 0.5)
        gradient += [weight * max(-1.0, min(1.0, error)) * strength / length] * length
    logprobs = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    loss, _ = kl_fit_loss(
        logprobs,
        torch.tensor(reference, dtype=torch.float64),
        lengths,
        advantages=[advantage for _, advantage, _ in turns],
        weights=[weight for _, _, weight in turns],
        strength=strength,
    )
    loss.backward()
    assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-12)


def test_values_learn_which_states_succeed() -> None:
    states = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    outcomes = (states[:, 0] > 0).float().tolist()
    heads = ValueHeads(ValueConfig(width=16, epochs=60), seed=0)
    first = heads.fit(states, outcomes)
    assert heads.fit(states, outcomes) < first
    right = [(value > 0.5) == bool(outcome) for value, outcome in zip(heads.values(states), outcomes, strict=True)]
    assert sum(right) >= 58


def test_a_replay_keeps_the_newest_successes_and_comes_back_whole(tmp_path: Path) -> None:
    replay = Replay(2)
    replay.add([episode(float(number % 3 > 0), ((number, 4), GOOD)) for number in range(6)])
    assert [kept.rows[0].context[0] for kept in replay.episodes()] == [4, 5]
    replay.save(tmp_path / "replay.json")
    other = Replay(2)
    other.restore(tmp_path / "replay.json")
    assert other.episodes() == replay.episodes()


@pytest.mark.parametrize("name", NAMES)
def test_the_released_context_belongs_to_m_grpo(name: str) -> None:
    values = config(name).model_dump() | {"official_release": True}
    with pytest.raises(ValueError, match="official_release belongs to m-grpo"):
        RlConfig.model_validate(values)
