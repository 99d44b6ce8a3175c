"""The one configuration language: a YAML file that describes the whole loop, from tasks to evaluation.

Every block is strict: an unknown key is refused with the nearest known one, and values that contradict each other are
refused here, before anything starts. `settings.py` turns a `LoopConfig` into the configuration of each service.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator
from webagent_runtime.config import Config, ConfigError, load

ENV_PREFIX = "WEBAGENT"
SERVICES = ("nats", "env", "inference", "evaluator", "rollout", "trainer")


class SeedRange(Config):
    """`count` seeds from `first` on."""

    first: int = Field(ge=0, description="The first seed.")
    count: int = Field(ge=1, description="How many seeds.")

    def seeds(self) -> range:
        """All seeds of the range, in order."""
        return range(self.first, self.first + self.count)

    def overlaps(self, other: "SeedRange") -> bool:
        """True if both hold a common seed."""
        return self.first < other.first + other.count and other.first < self.first + self.count


class ModelShape(Config):
    """Size of a model, for the memory estimate when its directory is not on this machine."""

    parameters: float = Field(gt=0, description="Number of parameters.")
    layers: int = Field(ge=1, description="Transformer blocks.")
    hidden_size: int = Field(ge=1, description="Width of the residual stream.")
    kv_heads: int = Field(ge=1, description="Key-value heads.")
    head_dim: int = Field(ge=1, description="Width of one head.")
    vocab_size: int = Field(ge=1, description="Tokens in the vocabulary.")


class ModelConfig(Config):
    """The policy's starting point."""

    path: Path = Field(description="Directory in Hugging Face's layout (config.json, tokenizer, safetensors).")
    prepare: Literal["smollm2-135m"] | None = Field(
        default=None, description="Make the directory from this packaged model when it is missing."
    )
    shape: ModelShape | None = Field(default=None, description="Stated size; read from the directory when unset.")


class PortsConfig(Config):
    """Ports of the local stack under `webagent up`; `webagent train` picks free ones."""

    nats: int = Field(default=4222, ge=1, le=65535)
    env: int = Field(default=50051, ge=1, le=65535)
    inference: int = Field(default=50052, ge=1, le=65535)
    inference_admin: int = Field(default=50062, ge=1, le=65535)
    evaluator: int = Field(default=50053, ge=1, le=65535)
    rollout: int = Field(default=50054, ge=1, le=65535)
    trainer: int = Field(default=50055, ge=1, le=65535)


class StackConfig(Config):
    """The local stack: processes, their ports, and each service's own settings laid over what this file implies."""

    ports: PortsConfig = PortsConfig()
    start_seconds: float = Field(default=600.0, gt=0, description="Bound on one service's start.")
    drain_seconds: float = Field(default=5.0, gt=0, description="Bound on one service's orderly end.")
    max_restarts: int = Field(default=5, ge=0, description="Restarts of one service before the run is given up.")
    env: dict[str, object] = Field(default_factory=dict, description="Settings of the env service.")
    inference: dict[str, object] = Field(default_factory=dict, description="Settings of the inference service.")
    evaluator: dict[str, object] = Field(default_factory=dict, description="Settings of the evaluator service.")
    rollout: dict[str, object] = Field(default_factory=dict, description="Settings of the rollout service.")
    trainer: dict[str, object] = Field(
        default_factory=dict, description="Settings of the trainer; `run`: those of a run."
    )

    @property
    def serves_model(self) -> bool:
        """Whether inference computes a model here; else it asks elsewhere, or has none."""
        return self.inference.get("backend", "vllm") in {"vllm", "transformers"}


class TasksConfig(Config):
    """What is learned."""

    suite: str = Field(default="miniwob", min_length=1, description="Suite that env serves.")
    ids: tuple[str, ...] = Field(min_length=1, description="Tasks of the suite.")

    @field_validator("ids")
    @classmethod
    def _distinct(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({task for task in ids if ids.count(task) > 1})
        if twice:
            raise ValueError(f"tasks given twice: {', '.join(twice)}")
        return ids


class AgentConfig(Config):
    """How the policy meets a page; the same in demonstrations, training and, but for `eval`'s, evaluation."""

    prompt: str = Field(default="compact", description="Prompt that rollout ships.")
    thinking: bool = Field(default=False, description="Ask for a chain of thought before the action.")
    max_turns: int = Field(default=6, ge=1, le=100, description="Turn budget of an episode.")
    max_unusable_replies: int = Field(default=5, ge=0, description="Unusable replies in a row that end it; 0: none.")
    max_reply_tokens: int = Field(default=48, ge=1, description="Bound on one reply.")
    compress_context: bool = Field(default=True, description="Show older pages by a short stand-in.")
    max_observation_bytes: int = Field(default=0, ge=0, description="Bound on one observation; 0: env's default.")
    omit_attributes: tuple[str, ...] = Field(default=(), description="Attributes left out of observations.")


class DemosConfig(Config):
    """Demonstrations by the scripted experts."""

    seeds: SeedRange = Field(description="Seeds played on every task.")


class ThoughtsConfig(Config):
    """Who words the reasonings of r1-cot's demonstrations."""

    endpoint: str | None = Field(
        default=None, description="OpenAI-compatible endpoint, such as http://host:8000/v1; unset: a template."
    )
    model: str = Field(default="default", min_length=1, description="Model that the endpoint is asked for.")


class BcConfig(Config):
    """Behaviour cloning on the demonstrations."""

    epochs: int = Field(default=3, ge=1, description="Passes over the rows, at most.")
    patience: int = Field(default=2, ge=1, description="Epochs without a better held-out loss that end the phase.")
    held_out_share: float = Field(default=0.1, ge=0, lt=1, description="Share of episodes that only measure the loss.")
    learning_rate: float = Field(default=1e-4, gt=0)
    batch_rows: int = Field(default=16, ge=1, description="Rows of one optimizer step.")


class RlConfig(Config):
    """Multi-turn GRPO."""

    iterations: int = Field(default=10, ge=1)
    groups: int = Field(default=16, ge=1, description="Groups of one iteration.")
    group_size: int = Field(default=8, ge=2, description="Episodes of one task and seed.")
    replacement_groups: int = Field(default=0, ge=0, description="Fresh groups for those without variance, at most.")
    seeds: SeedRange = Field(description="Seeds that groups are drawn from.")
    learning_rate: float = Field(default=2e-5, gt=0)
    schedule: Literal["linear", "constant"] = Field(
        default="constant", description="linear: the learning rate falls to 0 over the iterations."
    )
    epochs: int = Field(default=2, ge=1, description="Passes over one iteration's rows.")
    minibatch_rows: int | None = Field(default=24, ge=1, description="Rows of one optimizer step; null: all.")
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    kl_coefficient: float = Field(default=0.001, ge=0, description="0: no reference policy is kept.")
    normalizer: Literal["turn-mean", "token-mean", "constant"] = "turn-mean"
    temperature: float = Field(default=1.0, gt=0)
    max_staleness: int = Field(default=0, ge=0, description="Versions an episode may lag behind; 0: synchronous.")
    deadline_seconds: float = Field(default=300.0, gt=0, description="From dispatch; then an episode is EXPIRED.")
    method: dict[str, object] = Field(
        default={"name": "m-grpo"},
        description="`name` of one of the trainer's methods; beside it the method's own settings.",
    )


class DeepSpeedConfig(Config):
    """The engine that trains."""

    ranks: int = Field(default=1, ge=1, description="Processes of the trainer on this machine, one for each GPU.")
    nodes: int = Field(default=1, ge=1, description="Machines of the trainer; more than 1 are started by hand.")
    zero_stage: Literal[1, 2, 3] = Field(default=1, description="What is sharded over ranks; 3: parameters too.")
    offload_optimizer: bool = Field(default=False, description="Keep the optimizer in host memory; GPUs only.")
    gradient_checkpointing: bool = Field(default=False, description="Compute activations again in the backward pass.")
    pack_tokens: int = Field(default=2048, ge=1, description="Tokens computed at once.")


class EvalConfig(Config):
    """Held-out evaluation; the same seeds and temperature in every phase."""

    seeds: SeedRange = Field(description="Held-out seeds of every task.")
    zero_shot_seeds: int = Field(default=10, ge=1, description="The first of them serve the untrained model.")
    temperature: float = Field(default=1.0, ge=0)
    greedy: bool = Field(default=False, description="Also evaluate the final policy greedily.")
    max_turns: int | None = Field(default=None, ge=1, le=100, description="Turn budget; unset: as in training.")
    max_equal_actions: int = Field(default=0, ge=0, description="Equal actions in a row that end it; 0: none.")
    concurrency: int = Field(default=16, ge=1, description="Episodes at once.")
    attempts: int = Field(default=3, ge=1, description="Times an INVALID episode is played before it counts as such.")
    episode_seconds: float = Field(default=300.0, gt=0, description="Bound on one episode.")


class LoopConfig(Config):
    """One file for the whole loop."""

    variant: Literal["r1", "r1-zero", "r1-cot"] = Field(
        default="r1",
        description="r1: cloning, then RL. r1-zero: RL alone. r1-cot: cloning of demonstrations with a chain of "
        "thought, then RL.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of training. Held-out seeds do not depend on it.")
    model: ModelConfig
    stack: StackConfig = StackConfig()
    tasks: TasksConfig
    agent: AgentConfig = AgentConfig()
    demos: DemosConfig
    thoughts: ThoughtsConfig = ThoughtsConfig()
    bc: BcConfig = BcConfig()
    rl: RlConfig
    deepspeed: DeepSpeedConfig = DeepSpeedConfig()
    eval: EvalConfig

    @property
    def evaluated_agent(self) -> AgentConfig:
        """How the policy meets a page when it is evaluated: as in training, but for the turn budget."""
        return self.agent.model_copy(update={"max_turns": self.eval.max_turns or self.agent.max_turns})

    def to_yaml(self) -> str:
        """The resolved configuration, as a file that means the same."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        held_out = self.eval.seeds
        for name, seeds in (("demos.seeds", self.demos.seeds), ("rl.seeds", self.rl.seeds)):
            if held_out.overlaps(seeds):
                raise ValueError(
                    f"eval.seeds ({held_out.first}..{held_out.first + held_out.count - 1}) overlap {name} "
                    f"({seeds.first}..{seeds.first + seeds.count - 1}): held-out seeds must never be trained on"
                )
        if self.variant == "r1-cot" and not self.agent.thinking:
            raise ValueError("r1-cot teaches to think before acting: set agent.thinking")
        if self.eval.zero_shot_seeds > held_out.count:
            raise ValueError(
                f"eval.zero_shot_seeds ({self.eval.zero_shot_seeds}) is more than eval.seeds.count ({held_out.count})"
            )
        return self


def load_loop(path: Path, overrides: Mapping[str, object] | None = None) -> LoopConfig:
    """Reads and checks a loop's file; `ConfigError` says what to change."""
    if not path.is_file():
        raise ConfigError(f"no configuration file at {path}: the ones that come along are in configs/")
    return load(LoopConfig, path, env_prefix=ENV_PREFIX, overrides=overrides)


def parse_settings(settings: list[str]) -> dict[str, object]:
    """`section.key=value` pairs; values are YAML."""
    parsed: dict[str, object] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise ConfigError(f"--set takes section.key=value, not {setting!r}")
        parsed[key] = yaml.safe_load(value)
    return parsed
