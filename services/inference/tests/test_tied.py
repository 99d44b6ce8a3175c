"""A model of tied embeddings takes new weights in the transformers backend, whose files name them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from webagent_inference.config import EngineConfig
from webagent_inference.transformers_backend import TransformersBackend

PROMPT, REPLY = [5, 6, 7], [8, 9]


def saved(directory: Path, seed: int) -> tuple[Path, list[float]]:
    """A model directory, and what the model thinks of the reply."""
    torch.manual_seed(seed)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            initializer_range=0.5,
            tie_word_embeddings=True,
        )
    ).eval()
    model.save_pretrained(directory)
    assert "lm_head.weight" not in safetensors.torch.load_file(directory / "model.safetensors")
    with torch.inference_mode():
        logprobs = model(torch.tensor([PROMPT + REPLY])).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    return directory, [float(row[token]) for row, token in zip(logprobs, REPLY, strict=True)]


async def test_both_sides_of_tied_embeddings_change_and_no_other_tensor_may_be_missing(tmp_path: Path) -> None:
    base, before = saved(tmp_path / "base", 0)
    version, after = saved(tmp_path / "version", 1)
    backend = await TransformersBackend.start(base, EngineConfig(dtype="float32"), [2])
    try:
        assert await backend.score(PROMPT, REPLY) == pytest.approx(before, abs=1e-4)
        await backend.load(version)
        assert await backend.score(PROMPT, REPLY) == pytest.approx(after, abs=1e-4)
        for wrong in ({"model.norm.weight": None}, {"model.extra.weight": torch.ones(1)}):
            tensors = safetensors.torch.load_file(version / "model.safetensors") | wrong
            whole = {name: tensor for name, tensor in tensors.items() if tensor is not None}
            safetensors.torch.save_file(whole, version / "model.safetensors")
            with pytest.raises(RuntimeError, match=next(iter(wrong))):
                await backend.load(version)
    finally:
        await backend.close()
