"""The methods that learn from episodes, each with its own few settings; `name` says which one is meant."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from webagent_runtime.config import Config


class ValueConfig(Config):
    """Value heads: two small networks on the policy's hidden states, trained by cross-entropy."""

    width: int = Field(default=128, ge=1, description="hidden units of each layer")
    epochs: int = Field(default=20, ge=1, description="passes over one iteration's states")
    learning_rate: float = Field(default=1e-3, gt=0)


class MGrpoConfig(Config):
    """Multi-turn GRPO: WebAgent-R1 and R1-Zero. Its settings stand in the block around it."""

    name: Literal["m-grpo"] = "m-grpo"


class FilteredBcConfig(Config):
    """Cloning of the policy's own successes."""

    name: Literal["filtered-bc"]


class AwrConfig(Config):
    """Advantage-weighted regression."""

    name: Literal["awr"]
    temperature: float = Field(default=0.5, gt=0, description="beta: the smaller, the more an advantage matters")
    weight_cap: float = Field(default=20.0, ge=1, description="largest weight of a turn")
    values: ValueConfig = ValueConfig()


class DigiRlConfig(Config):
    """DigiRL: cloning of turns with a doubly robust advantage, in episodes that beat their task's value."""

    name: Literal["digirl"]
    decay: float = Field(default=0.5, ge=0, le=1, description="lambda: how far back the outcome itself counts")
    advantage_floor: float = Field(default=0.05, ge=0, description="turns at or below are left out")
    values: ValueConfig = ValueConfig()


class WebRlConfig(Config):
    """WebRL's update: KL-constrained, with successes of earlier iterations that the policy half knows."""

    name: Literal["webrl"]
    kl_strength: float = Field(default=1.0, gt=0, description="beta: how near to the reference the policy stays")
    discount: float = Field(default=0.9, ge=0, le=1, description="gamma of the return")
    turn_cost: float = Field(default=0.05, ge=0, description="taken off each turn's advantage")
    replay_episodes: int = Field(default=256, ge=0, description="newest successful episodes that are kept")
    replay_share: float = Field(default=2.0, ge=0, description="replayed rows per fresh row, at most")
    least_confidence: float = Field(default=0.5, ge=0, le=1, description="of a replayed row, per token")
    most_confidence: float = Field(default=0.95, ge=0, le=1)
    values: ValueConfig = ValueConfig()


MethodConfig = Annotated[
    MGrpoConfig | FilteredBcConfig | AwrConfig | DigiRlConfig | WebRlConfig, Field(discriminator="name")
]
