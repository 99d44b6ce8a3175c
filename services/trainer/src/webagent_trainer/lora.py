"""Low-rank adapters by peft: what is trained instead of all parameters, and what is published in their stead.

Replicas serve whole models, so an adapter is merged into its layer's weight when tensors are handed out. With the
adapters scaled to nothing the policy is its own reference, and no copy of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from webagent_trainer.config import LoraConfig

_ADAPTER = "default"
_BASE = ".base_layer."


def add_adapters(model: nn.Module, config: LoraConfig) -> None:
    """Freezes the model and puts an adapter beside each of the named layers, the same one each time."""
    import peft  # noqa: PLC0415  seconds, and only for those who want adapters

    settings = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=list(config.layers), lora_dropout=0.0, bias="none"
    )
    model.requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        peft.inject_adapter_in_model(settings, model, adapter_name=_ADAPTER)


def exported(model: Any) -> Iterator[tuple[str, list[nn.Parameter], float]]:
    """Each tensor under the plain model's name: what it is made of, and the scale of its adapter."""
    for name, parameter in model.named_parameters():
        if ".lora_A." in name or ".lora_B." in name:
            continue
        if _BASE not in name or not name.endswith(".weight"):
            yield name.replace(_BASE, "."), [parameter], 0.0
            continue
        layer = model.get_submodule(name.split(_BASE)[0])
        adapter = [layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight]
        yield name.replace(_BASE, "."), [parameter, *adapter], layer.scaling[_ADAPTER]


def merged(parts: Sequence[Tensor], scale: float) -> Tensor:
    """A copy on the CPU of the weight, its adapter added."""
    weight, *adapter = (part.detach() for part in parts)
    if not adapter:
        return weight.to("cpu", copy=True)
    down, up = adapter
    return torch.add(weight.float(), up.float() @ down.float(), alpha=scale).to(weight.dtype).cpu()


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """The model as it was before it had adapters."""
    layers: list[Any] = [module for module in model.modules() if hasattr(module, "lora_A")]
    scales = [layer.scaling[_ADAPTER] for layer in layers]
    for layer in layers:
        layer.scaling[_ADAPTER] = 0.0
    try:
        yield
    finally:
        for layer, scale in zip(layers, scales, strict=True):
            layer.scaling[_ADAPTER] = scale
