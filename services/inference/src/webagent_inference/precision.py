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
