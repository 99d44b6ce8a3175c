"""Weights to begin with that another run left: a policy version as it lies there, or a checkpoint's parameters.

Only weights are taken: optimizer, sampler, ledger, lineage and random states begin anew. Resuming, which takes all of
them, happens by itself wherever a run has checkpoints of its own.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

from webagent_trainer.checkpoint import read_checkpoint
from webagent_trainer.errors import RunFailedError
from webagent_trainer.publish import write_model

_PREFIX = "causal_lm."
_TAG = "engine"


def weights_of(source: Path, *, base_model: Path, into: Path, dtype: torch.dtype) -> Path:
    """A model directory with the weights of `source`: itself if it is one, else made in `into` from a checkpoint."""
    if (source / "config.json").is_file():
        _check_size(source, base_model)
        return source
    checkpoint = read_checkpoint(source)
    if checkpoint.engine is None:
        raise RunFailedError("NO_WEIGHTS", f"{source} was taken between phases and holds no weights; name a version")
    parameters = _engine_parameters(checkpoint.engine)
    adapted = [name for name in parameters if ".lora_" in name]
    if adapted:
        raise RunFailedError("NO_WEIGHTS", f"{source} holds adapters; name a version, which has them merged")
    shutil.rmtree(into, ignore_errors=True)
    tensors = {name.removeprefix(_PREFIX): value.to(dtype).contiguous() for name, value in parameters.items()}
    write_model(tensors, base_model=base_model, directory=into)
    return into


def _engine_parameters(engine: Path) -> dict[str, Any]:
    """What DeepSpeed saved, whatever its stage and number of ranks."""
    whole = engine / _TAG / "mp_rank_00_model_states.pt"
    if not whole.is_file():
        # ZeRO-3: every rank saved its share.
        found: dict[str, Any] = get_fp32_state_dict_from_zero_checkpoint(str(engine), tag=_TAG)
        return found
    # Written by a trainer, as everything in a checkpoint.
    parameters: dict[str, Any] = torch.load(whole, map_location="cpu", weights_only=False)["module"]
    return parameters


def _check_size(source: Path, base_model: Path) -> None:
    sizes = [json.loads((path / "config.json").read_text()).get("vocab_size") for path in (source, base_model)]
    if sizes[0] != sizes[1]:
        raise RunFailedError("OTHER_MODEL", f"{source} has a vocabulary of {sizes[0]}, {base_model} of {sizes[1]}")
