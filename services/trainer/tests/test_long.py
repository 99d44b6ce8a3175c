"""The paper's context of 16,384 tokens: learned alike with and without gradient checkpointing, in a bounded pack."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from webagent_trainer.batches import LearningRow
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.crew import Crew
from webagent_trainer.learner import Objective
from webagent_trainer.model import PackedModel, load_model
from webagent_trainer.packing import Pack, pack_rows
from webagent_trainer.testing import VOCABULARY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

CONTEXT = 16_384
REPLY = 512


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    directory = tmp_path_factory.mktemp("models") / "long"
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def make_row(reply: int) -> LearningRow:
    tokens = torch.randint(3, VOCABULARY, (CONTEXT,), generator=torch.Generator().manual_seed(reply)).tolist()
    learned = tuple(tokens[-REPLY:])
    values = (-4.0,) * REPLY
    return LearningRow(
        tuple(tokens[:-REPLY]),
        learned,
        weight=1 / REPLY,
        advantage=1.0,
        sampler=values,
        stale=(True,) * REPLY,
        old=values,
    )


def test_a_row_of_16k_tokens_is_learned_alike_with_and_without_checkpointing(crew: Crew, long_model: Path) -> None:
    row = make_row(0)
    found = []
    for checkpointing in (False, True):
        config = DeepSpeedConfig(threads=2, bf16=False, gradient_checkpointing=checkpointing, pack_tokens=CONTEXT)
        crew.begin(config)
        crew.open(str(long_model), None, OptimizerConfig(learning_rate=1e-3), 1.0)
        report = crew.learn([row], Objective(), 1e-3)
        assert report.sums["computed"] == CONTEXT - 1
        (after,) = crew.logprobs([row])
        found.append([report.sums["loss"], report.gradient_norm, *after])
    assert found[1] == pytest.approx(found[0], rel=1e-4, abs=1e-4)


def test_checkpointing_keeps_a_small_part_of_what_is_kept_without_it(long_model: Path) -> None:
    (pack,) = pack_rows([make_row(0)], budget=CONTEXT)
    model = load_model(long_model, dtype=torch.float32).train()
    whole = kept_bytes(model, pack)
    model.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    assert kept_bytes(model, pack) < 0.5 * whole


def kept_bytes(model: PackedModel, pack: Pack) -> int:
    """What a forward pass keeps for the backward pass, besides parameters and what checkpoints hold as their input."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        values, _ = model(pack)
    owned = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    total = sum(size for place, size in kept.items() if place not in owned)
    assert values.requires_grad
    return total


def test_the_replies_to_one_long_prompt_do_not_widen_the_pack() -> None:
    first = make_row(0)
    rows = [LearningRow(first.context, make_row(number).reply, weight=1.0) for number in range(8)]
    packs = pack_rows(rows, budget=CONTEXT)
    assert all(len(pack.token_ids) <= CONTEXT for pack in packs)
    assert sorted(row for pack in packs for row in pack.rows) == list(range(8))
