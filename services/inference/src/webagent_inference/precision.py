"""Which numbers the policy is computed in."""

from typing import Literal

import torch

from webagent_inference.config import EngineConfig


def compute_dtype(config: EngineConfig) -> Literal["bfloat16", "float32"]:
    """The configured type; of itself bfloat16, but float32 on a CPU without tile units, where it is twice as fast."""
    if config.dtype != "auto":
        return config.dtype
    tiles: bool = torch.cuda.is_available() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if tiles else "float32"


def bytes_per_cached_value(config: EngineConfig) -> int | None:
    """Size of a number in the KV cache on CPU; None on a GPU, whose cache takes what memory is left."""
    if torch.cuda.is_available():
        return None
    return 2 if compute_dtype(config) == "bfloat16" else 4
