"""The loss against an independent computation in plain Python floats: value, and gradient by its closed form."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from webagent_trainer.advantage import group_advantages, has_variance
from webagent_trainer.loss import (
    TokenLoss,
    cloning_loss,
    grpo_loss,
    kl_estimate,
    policy_pull,
    sampler_weights,
    turn_weights,
)

LOGPROB = st.floats(-6.0, -0.01)


@st.composite
def tokens(draw: st.DrawFn) -> list[dict[str, float]]:
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "new": LOGPROB,
                    "old": LOGPROB,
                    "reference": LOGPROB,
                    "sampler": LOGPROB,
                    "stale": st.booleans(),
                    "advantage": st.floats(-2.0, 2.0),
                    "weight": st.floats(0.001, 1.0),
                }
            ),
            min_size=1,
            max_size=12,
        )
    )


def expected(
    batch: list[dict[str, float]], low: float, high: float, beta: float, *, corrected: bool = False
) -> tuple[float, list[float]]:
    value, gradient = 0.0, []
    for t in batch:
        rho = math.exp(t["new"] - t["old"])
        clipped = min(max(rho, 1 - low), 1 + high)
        w = min(math.exp(t["old"] - t["sampler"]), 2.0) if t["stale"] else 1.0
        q = t["reference"] - t["new"]
        k = math.exp(q) - q - 1
        c = rho if corrected else 1.0
        scale = t["weight"] * w
        value += scale * (-min(rho * t["advantage"], clipped * t["advantage"]) + beta * c * k)
        # Where the clipped branch is the smaller, the policy term is constant.
        inactive = clipped * t["advantage"] < rho * t["advantage"]
        gradient.append(scale * ((0.0 if inactive else -rho * t["advantage"]) + beta * c * (1 - math.exp(q))))
    return value, gradient


@given(tokens())
def test_value_and_gradient_are_those_of_the_formula(batch: list[dict[str, float]]) -> None:
    column = {name: torch.tensor([t[name] for t in batch], dtype=torch.float64) for name in batch[0]}
    new = column["new"].requires_grad_()
    stale = column["stale"].bool()
    spec = TokenLoss(
        weights=column["weight"],
        advantages=column["advantage"],
        old=column["old"],
        sampler_weights=sampler_weights(column["old"], column["sampler"], stale, cap=2.0),
        reference=column["reference"],
    )
    for beta, corrected in ((0.01, False), (0.01, True), (0.0, False)):
        new.grad = None
        settings = {"clip_low": 0.2, "clip_high": 0.28, "kl_coefficient": beta, "kl_corrected": corrected}
        loss, report = grpo_loss(new, spec, **settings)  # type: ignore[arg-type]
        loss.backward()
        value, gradient = expected(batch, 0.2, 0.28, beta, corrected=corrected)
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert new.grad is not None
        assert new.grad.tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-12)
        assert report["tokens"] == len(batch)
    pull = policy_pull(new, spec, clip_low=0.2, clip_high=0.28)
    assert pull.tolist() == pytest.approx([abs(value) for value in gradient], rel=1e-9, abs=1e-12)


GROUPS = st.lists(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 6), min_size=1, max_size=5)), min_size=2, max_size=4),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("normalizer", ["turn-mean", "token-mean", "constant"])
@given(groups=GROUPS)
def test_the_nested_means_over_unequal_turns_and_tokens_are_those_of_the_paper(
    normalizer: str, groups: list[list[tuple[bool, list[int]]]]
) -> None:
    chance = random.Random(0)
    flat: list[dict[str, float]] = []
    value = 0.0
    live = [group for group in groups if has_variance([float(good) for good, _ in group], tolerance=1e-6)]
    for group in live:
        advantages = group_advantages([float(good) for good, _ in group])
        for advantage, (_, lengths) in zip(advantages, group, strict=True):
            weights = turn_weights(
                lengths,
                group_size=len(group),
                turn_budget=9,
                normalizer=normalizer,  # type: ignore[arg-type]
            )
            turns = []
            for length, weight in zip(lengths, weights, strict=True):
                gaps = [chance.uniform(-0.5, 0.5) for _ in range(length)]
                flat.extend({"gap": gap, "a": advantage, "weight": weight / len(live)} for gap in gaps)
                rhos = [math.exp(gap) for gap in gaps]
                turns.append([min(rho * advantage, min(max(rho, 0.8), 1.2) * advantage) for rho in rhos])
            if normalizer == "turn-mean":
                mean = sum(sum(turn) / len(turn) for turn in turns) / len(turns)
            elif normalizer == "token-mean":
                mean = sum(map(sum, turns)) / sum(map(len, turns))
            else:
                mean = sum(sum(turn) / len(turn) for turn in turns) / 9
            value -= mean / len(group) / len(live)
    column = {name: torch.tensor([t[name] for t in flat], dtype=torch.float64) for name in ("gap", "a", "weight")}
    ones = torch.ones(len(flat), dtype=torch.float64)
    spec = TokenLoss(column["weight"], column["a"], torch.zeros_like(ones), ones, None)
    loss, _ = grpo_loss(column["gap"], spec, clip_low=0.2, clip_high=0.2, kl_coefficient=0.0)
    assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_without_a_reference_there_is_no_kl() -> None:
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    spec = TokenLoss(torch.ones(2), torch.ones(2), new.detach(), torch.ones(2), None)
    loss, report = grpo_loss(new, spec, clip_low=0.2, clip_high=0.2, kl_coefficient=5.0)
    assert loss.item() == pytest.approx(-2.0)
    assert report["kl"] == 0.0


def test_the_weight_of_older_versions_is_capped_and_carries_no_gradient() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    weights = sampler_weights(old, torch.tensor([-1.5, -9.0, -9.0]), torch.tensor([True, True, False]), cap=2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.5), 2.0, 1.0])
    assert not weights.requires_grad


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.floats(-5, 5))
def test_the_kl_estimate_is_never_negative(new: list[float], shift: float) -> None:
    values = torch.tensor(new, dtype=torch.float64)
    assert bool((kl_estimate(values, values + shift) >= -1e-12).all())


def kl_terms(new: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, *, corrected: bool) -> torch.Tensor:
    """The KL term's derivative by each token's log-probability, where nothing else pulls."""
    spec = TokenLoss(torch.ones_like(old), torch.zeros_like(old), old, torch.ones_like(old), reference)
    leaf = new.detach().requires_grad_()
    settings = {"clip_low": 0.2, "clip_high": 0.2, "kl_coefficient": 1.0, "kl_corrected": corrected}
    grpo_loss(leaf, spec, **settings)[0].backward()  # type: ignore[arg-type]
    assert leaf.grad is not None
    return leaf.grad


def test_the_corrected_kl_term_is_the_same_to_the_bit_in_a_batchs_first_step() -> None:
    new = torch.log_softmax(torch.randn(50, generator=torch.Generator().manual_seed(0)), 0)
    reference = torch.log_softmax(torch.randn(50, generator=torch.Generator().manual_seed(1)), 0)
    assert torch.equal(*(kl_terms(new, new, reference, corrected=corrected) for corrected in (False, True)))


def test_of_another_policys_tokens_only_the_corrected_kl_term_expects_what_its_own_would() -> None:
    tables = (torch.randn(20, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in range(3))
    new, old, reference = (torch.log_softmax(2.0 * table, 0) for table in tables)
    own = new.exp() @ kl_estimate(new, reference)
    assert own.item() == pytest.approx((new.exp() * (new - reference)).sum().item())
    assert (old.exp() * (new - old).exp()) @ kl_estimate(new, reference) == pytest.approx(own.item())
    on_policy = new.exp() * kl_terms(new, new, reference, corrected=False)
    assert torch.allclose(old.exp() * kl_terms(new, old, reference, corrected=True), on_policy)
    assert not torch.allclose(old.exp() * kl_terms(new, old, reference, corrected=False), on_policy, atol=1e-2)


def test_a_token_that_became_rare_pulls_without_bound_unless_the_kl_term_is_corrected() -> None:
    new, old, reference = (torch.tensor([math.log(p)], dtype=torch.float64) for p in (1e-9, 0.1, 0.2))
    assert kl_terms(new, old, reference, corrected=False).item() == pytest.approx(-2e8, rel=1e-6)
    assert kl_terms(new, old, reference, corrected=True).item() == pytest.approx(-2.0, rel=1e-6)


@pytest.mark.parametrize(
    ("normalizer", "weights"),
    [
        ("turn-mean", [1 / (4 * 2 * 3), 1 / (4 * 2 * 5)]),
        ("token-mean", [1 / (4 * 8), 1 / (4 * 8)]),
        ("constant", [1 / (4 * 10 * 3), 1 / (4 * 10 * 5)]),
    ],
)
def test_the_three_normalizers(normalizer: str, weights: list[float]) -> None:
    found = turn_weights([3, 5], group_size=4, turn_budget=10, normalizer=normalizer)  # type: ignore[arg-type]
    assert found == pytest.approx(weights)


def test_a_constant_normalizer_weighs_the_tokens_of_long_failures_like_those_of_short_successes() -> None:
    short = turn_weights([6], group_size=2, turn_budget=12, normalizer="constant")
    long = turn_weights([6] * 12, group_size=2, turn_budget=12, normalizer="constant")
    assert set(long) == set(short)
    assert turn_weights([6] * 12, group_size=2, turn_budget=12, normalizer="turn-mean")[0] < short[0] * 12


def test_cloning_is_the_weighted_negative_log_likelihood() -> None:
    new = torch.tensor([-1.0, -3.0], requires_grad=True)
    loss, _ = cloning_loss(new, torch.tensor([0.5, 0.25]))
    loss.backward()
    assert loss.item() == pytest.approx(1.25)
    assert new.grad is not None
    assert new.grad.tolist() == [-0.5, -0.25]


def test_advantages_use_the_unbiased_deviation() -> None:
    high, low = 0.5 / (math.sqrt(1 / 3) + 1e-4), 0.5 / (math.sqrt(1 / 2) + 1e-4)
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == pytest.approx([high, -high, -high, high])
    assert group_advantages([1.0, 0.0]) == pytest.approx([low, -low])
    assert group_advantages([0.37] * 5) == pytest.approx([0.0] * 5)


@pytest.mark.parametrize("rewards", [[0.37] * 8, [1.0] * 4, [0.0], [0.5, 0.5 + 1e-9]])
def test_a_group_of_equal_rewards_has_no_variance(rewards: list[float]) -> None:
    assert not has_variance(rewards, tolerance=1e-6)


def test_a_group_of_different_rewards_has_variance() -> None:
    assert has_variance([0.0, 0.0, 1.0], tolerance=1e-6)


def test_the_noise_of_another_arithmetic_clips_no_long_episode() -> None:
    chance = random.Random(0)
    # The ratio is each token's own: over 2,000 tokens one of the whole sequence would be far outside of any clip.
    noise = torch.tensor([chance.gauss(0.0, 0.012) for _ in range(2000)], dtype=torch.float64)
    ones = torch.ones(2000, dtype=torch.float64)
    spec = TokenLoss(ones, ones, -ones, ones, None)
    _, report = grpo_loss(noise - 1.0, spec, clip_low=0.2, clip_high=0.2, kl_coefficient=0.0)
    assert report["clipped"] <= 0.05 * 2000
