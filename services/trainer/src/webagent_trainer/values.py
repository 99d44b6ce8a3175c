"""How likely an episode succeeds from a state: two small networks on the policy's hidden states.

A state is the hidden state of the prompt's last token, which has seen instruction, history and page. Each head is an
MLP of three layers trained by binary cross-entropy; their smaller answer counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from webagent_trainer.method_config import ValueConfig

_HEADS = 2
_BATCH = 64


class ValueHeads:
    """Lives on rank 0; built at the first states that it sees."""

    def __init__(self, config: ValueConfig, *, seed: int) -> None:
        self._config = config
        self._chance = torch.Generator().manual_seed(seed)
        self._heads: nn.ModuleList | None = None
        self._adam: torch.optim.Adam | None = None

    def fit(self, states: Tensor, outcomes: Sequence[float]) -> float:
        """Learns that `states`, [N, D], led to `outcomes`; returns the mean loss of the last pass."""
        heads = self._built(states.shape[1])
        assert self._adam is not None
        targets = torch.tensor(outcomes, dtype=torch.float32)
        total = 0.0
        for _ in range(self._config.epochs):
            total = 0.0
            for chosen in torch.split(torch.randperm(len(states), generator=self._chance), _BATCH):
                losses = [
                    nn.functional.binary_cross_entropy_with_logits(head(states[chosen])[:, 0], targets[chosen])
                    for head in heads
                ]
                self._adam.zero_grad()
                torch.autograd.backward(losses)
                self._adam.step()
                total += sum(loss.item() for loss in losses) * len(chosen) / _HEADS
        return total / len(states)

    def values(self, states: Tensor) -> list[float]:
        """The probability of success from each state."""
        heads = self._built(states.shape[1])
        with torch.no_grad():
            answers = torch.stack([head(states)[:, 0].sigmoid() for head in heads])
        smallest: list[float] = answers.min(dim=0).values.tolist()
        return smallest

    def save(self, path: Path) -> None:
        """Writes weights and moments; nothing before the first states."""
        if self._heads is None or self._adam is None:
            return
        tensors = {f"weight/{name}": value for name, value in self._heads.state_dict().items()}
        for index, moments in self._adam.state_dict()["state"].items():
            tensors |= {f"adam/{index}/{name}": value for name, value in moments.items()}
        save_file(tensors | {"chance": self._chance.get_state()}, path)

    def restore(self, path: Path) -> None:
        """Reads what `save` wrote; without the file, starts anew."""
        if not path.is_file():
            return
        tensors = load_file(path)
        self._chance.set_state(tensors.pop("chance"))
        weights = {name.removeprefix("weight/"): value for name, value in tensors.items() if name.startswith("weight/")}
        self._built(len(weights["0.0.weight"])).load_state_dict(weights)
        assert self._adam is not None
        adam = self._adam.state_dict()
        for name, value in tensors.items():
            if name.startswith("adam/"):
                _, index, moment = name.split("/")
                adam["state"].setdefault(int(index), {})[moment] = value
        self._adam.load_state_dict(adam)

    def _built(self, width: int) -> nn.ModuleList:
        if self._heads is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._chance.initial_seed())
                self._heads = nn.ModuleList(_head(width, self._config.width) for _ in range(_HEADS))
            self._adam = torch.optim.Adam(self._heads.parameters(), lr=self._config.learning_rate)
        return self._heads


def _head(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )
