"""Packed rows against the same rows computed one by one by the unchanged model of transformers."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from webagent_trainer.model import load_model
from webagent_trainer.packing import pack_rows, stream_length

TOKEN = st.integers(3, 12)


@dataclass(frozen=True)
class Sample:
    context: tuple[int, ...]
    reply: tuple[int, ...]


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Rows that share prefixes, contexts and beginnings of replies, as those of a group do."""
    trunk = draw(st.lists(TOKEN, max_size=6))
    contexts = draw(st.lists(st.lists(TOKEN, min_size=1, max_size=6), min_size=1, max_size=4))
    replies = st.lists(TOKEN, min_size=1, max_size=5)
    return [
        Sample((*trunk, *draw(st.sampled_from(contexts))), tuple(draw(replies))) for _ in range(draw(st.integers(1, 8)))
    ]


def one_by_one(model: torch.nn.Module, rows: list[Sample], temperature: float) -> list[torch.Tensor]:
    found = []
    for row in rows:
        logits = model(torch.tensor([[*row.context, *row.reply]])).logits[0].float() / temperature
        scores = logits.log_softmax(-1)[len(row.context) - 1 : -1]
        found.append(scores.gather(1, torch.tensor(row.reply)[:, None])[:, 0])
    return found


@pytest.fixture(scope="module")
def models(tiny_model: Path) -> tuple[torch.nn.Module, torch.nn.Module]:
    plain = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64, attn_implementation="sdpa")
    return plain, load_model(tiny_model, dtype=torch.float64)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=samples(), budget=st.integers(1, 60), temperature=st.sampled_from([1.0, 0.7]))
def test_packing_changes_neither_log_probabilities_nor_gradients(
    models: tuple[torch.nn.Module, torch.nn.Module], rows: list[Sample], budget: int, temperature: float
) -> None:
    plain, packed = models
    weights = [1.0 + index for index in range(len(rows))]
    plain.zero_grad()
    packed.zero_grad()
    wanted = one_by_one(plain, rows, temperature)
    sum(w * values.sum() for w, values in zip(weights, wanted, strict=True)).backward()
    seen = []
    for pack in pack_rows(rows, budget=budget):
        values = packed(pack, temperature)[0].split(pack.reply_lengths)
        for row, value in zip(pack.rows, values, strict=True):
            seen.append(row)
            torch.testing.assert_close(value, wanted[row], rtol=1e-4, atol=1e-5)
        sum(weights[row] * value.sum() for row, value in zip(pack.rows, values, strict=True)).backward()
    assert sorted(seen) == list(range(len(rows)))
    gradients = dict(packed.causal_lm.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-3, atol=1e-4)


def test_the_entropy_is_that_of_the_distributions_that_replies_were_drawn_from(
    models: tuple[torch.nn.Module, torch.nn.Module],
) -> None:
    plain, packed = models
    (pack,) = pack_rows([Sample((3, 4, 5), (6, 7))], budget=100)
    scores = plain(torch.tensor([[3, 4, 5, 6]])).logits[0, 2:].float().log_softmax(-1)
    torch.testing.assert_close(packed(pack)[1], -(scores.exp() * scores).sum(-1), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert packed(pack)[1].numel() == 0


@given(rows=samples(), budget=st.integers(1, 60))
def test_a_pack_keeps_to_its_budget_unless_one_row_alone_exceeds_it(rows: list[Sample], budget: int) -> None:
    for pack in pack_rows(rows, budget=budget):
        longest = max(len(rows[row].context) + len(rows[row].reply) - 1 for row in pack.rows)
        assert len(pack.token_ids) <= max(budget, longest)


def test_what_a_group_shares_is_computed_once() -> None:
    prompt = tuple(range(3, 43))
    rows = [Sample(prompt, (5, 6, 7, last)) for last in range(3, 11)]
    assert stream_length(pack_rows(rows, budget=1000)) == 40 + 3
    other = [Sample((*prompt[:30], 50, 51), (5,)), Sample((*prompt[:30], 52, 53), (5,))]
    assert stream_length(pack_rows(other, budget=1000)) == 30 + 2 + 2


def test_the_same_in_bfloat16_within_its_noise(tiny_model: Path) -> None:
    model = load_model(tiny_model, dtype=torch.bfloat16)
    rows = [Sample(tuple(range(3, 40)), (5, 6, last)) for last in range(3, 20)]
    with torch.no_grad():
        (pack,) = pack_rows(rows, budget=1000)
        together = model(pack)[0].split(pack.reply_lengths)
        for row, value in zip(pack.rows, together, strict=True):
            (single,) = pack_rows([rows[row]], budget=1000)
            torch.testing.assert_close(value, model(single)[0], rtol=0.0, atol=0.1)
