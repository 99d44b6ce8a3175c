"""The trainer's configuration, checked before anything heavy is imported.

`TrainerConfig` is the process; `RunConfig` is one run, as `StartRun` takes it. Values that contradict each other, or
that would make the importance ratio wrong, are refused here with one line that says what to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator
from webagent_runtime.config import (
    Config,
    ConfigError,
    PayloadConfig,
    QueueConfig,
    ServerConfig,
    TelemetryConfig,
    validate,
)

from webagent_trainer.method_config import MethodConfig, MGrpoConfig

# Whatever reshapes the sampled distribution: the sampler's log-probabilities would no longer be the model's.
_BREAKS_RATIO = (
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "grammar",
)


class SeedRange(Config):
    """`count` seeds from `first` on."""

    first: int = Field(ge=0, description="the first seed")
    count: int = Field(ge=1, description="how many")

    @property
    def end(self) -> int:
        """The seed after the last."""
        return self.first + self.count


class LoraConfig(Config):
    """Low-rank adapters: the model itself stays as it is."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1, description="adapters are scaled by alpha / rank")
    layers: tuple[str, ...] = Field(
        default=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="layers that get one, by the end of their names",
    )


class DeepSpeedConfig(Config):
    """The engine that holds parameters, gradients and optimizer."""

    zero_stage: Literal[1, 2, 3] = Field(default=1, description="what ranks shard: optimizer, gradients, parameters")
    bf16: bool | None = Field(
        default=None,
        description="compute in bfloat16 with float32 master weights; false: float32; unset: bfloat16 on GPUs and on "
        "CPUs that multiply it in tiles, elsewhere float32, which is twice as fast there",
    )
    offload_optimizer: bool = Field(default=False, description="keep the optimizer in host memory; GPUs only")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations in the backward pass")
    threads: int | None = Field(default=None, ge=1, description="CPU threads of one rank; unset: all")
    pack_tokens: int = Field(default=2048, ge=1, description="tokens computed at once; bounds memory")
    lora: LoraConfig | None = Field(default=None, description="unset: all parameters are trained")


class OptimizerConfig(Config):
    """AdamW."""

    learning_rate: float = Field(gt=0, description="peak learning rate")
    weight_decay: float = Field(default=0.0, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    max_gradient_norm: float = Field(default=1.0, gt=0, description="longer gradients are scaled down to this")


class BcConfig(Config):
    """Behaviour cloning on a file of demonstrations."""

    demonstrations: Path = Field(description="delimited Trajectory messages; those judged successful are cloned")
    epochs: int = Field(default=3, ge=1, description="passes over the rows, at most")
    patience: int = Field(default=2, ge=1, description="epochs without a better held-out loss that end the phase")
    batch_rows: int = Field(default=16, ge=1, description="rows of one optimizer step")
    held_out_share: float = Field(default=0.1, ge=0, lt=1, description="share of episodes that only measure the loss")
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_share: float = Field(default=0.05, ge=0, lt=1, description="share of the steps over which the rate rises")
    serve_seconds: float = Field(default=180.0, gt=0, description="bound on every replica serving the result")
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-4)


class SamplingConfig(Config):
    """How rollout lets the policy sample."""

    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=64, ge=1, description="bound on one reply")
    top_p: float = 1.0
    logprobs: Literal["raw", "processed"] = Field(default="raw", description="kind that inference is set to return")

    @model_validator(mode="before")
    @classmethod
    def _keeps_the_ratio(cls, values: object) -> object:
        if isinstance(values, Mapping):
            for name in _BREAKS_RATIO:
                if name in values:
                    raise ValueError(
                        f"{name} changes the sampled distribution and breaks the importance ratio; remove it"
                    )
        return values

    @field_validator("top_p")
    @classmethod
    def _whole_distribution(cls, top_p: float) -> float:
        if top_p != 1.0:
            raise ValueError("top_p other than 1 cuts the sampled distribution and breaks the importance ratio; set 1")
        return top_p

    @model_validator(mode="after")
    def _tempered_needs_processed(self) -> Self:
        if self.temperature != 1.0 and self.logprobs != "processed":
            raise ValueError(
                f"temperature {self.temperature:g} needs processed log-probabilities, raw ones are those of "
                "temperature 1; set logprobs: processed here and at inference, or temperature: 1"
            )
        return self


class AgentConfig(Config):
    """How the policy meets a page."""

    prompt: str = Field(default="compact", min_length=1, description="prompt that rollout ships")
    thinking: bool = False
    max_turns: int = Field(default=10, ge=1, le=100, description="turn budget of an episode")
    max_unusable_replies: int = Field(default=5, ge=0, description="unusable replies in a row that end it; 0: none")
    screenshots: bool = False
    compress_context: bool = Field(default=True, description="show older pages by a short stand-in")
    max_observation_bytes: int = Field(default=0, ge=0, description="0: env's default")
    omit_attributes: tuple[str, ...] = ()


class TaskSamplerConfig(Config):
    """Which tasks are drawn: by the variance of each one's rewards within its groups so far."""

    floor: float = Field(default=0.05, gt=0, le=0.25, description="least weight of a task; 0.25: all tasks alike")
    memory: float = Field(default=0.7, ge=0, lt=1, description="weight of the past in a task's running numbers")


class InvalidBound(Config):
    """When broken infrastructure ends the run."""

    share: float = Field(default=0.5, gt=0, le=1, description="the run fails above this share of INVALID episodes")
    window: int = Field(default=64, ge=1, description="among this many newest outcomes")


class RlConfig(Config):
    """Learning from episodes: by multi-turn GRPO, or by one of the methods it is compared with."""

    method: MethodConfig = MGrpoConfig()
    suite: str = Field(min_length=1, description="suite that env serves")
    tasks: tuple[str, ...] = Field(min_length=1, description="tasks of the suite")
    seeds: SeedRange = Field(description="seeds that groups are drawn from")
    held_out_seeds: SeedRange | None = Field(default=None, description="seeds of the evaluation, never drawn")
    agent: AgentConfig = AgentConfig()
    sampling: SamplingConfig = SamplingConfig()

    iterations: int = Field(default=10, ge=1)
    groups: int = Field(default=16, ge=1, description="groups of one iteration")
    group_size: int = Field(default=8, ge=2, description="episodes of one group; they share task and seed")
    replacement_groups: int = Field(default=0, ge=0, description="fresh groups for those without variance, at most")
    variance_tolerance: float = Field(default=1e-6, ge=0, description="rewards closer than this are equal")
    epochs: int = Field(default=1, ge=1, description="passes over one iteration's rows")
    minibatch_rows: int | None = Field(default=None, ge=1, description="rows of one optimizer step; unset: all")
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    kl_coefficient: float = Field(default=0.001, ge=0, description="0: no reference policy is kept")
    kl_corrected: bool = Field(
        default=False,
        description="weigh the KL estimate by the ratio: over several steps on a batch it stays one, and bounded; see "
        "loss.py",
    )
    normalizer: Literal["turn-mean", "token-mean", "constant"] = "turn-mean"
    official_release: bool = Field(
        default=False,
        description="learn each reply after its page's stand-in, as the paper's released code does; for comparison",
    )
    stored: Path | None = Field(
        default=None, description="delimited Trajectory messages to learn from; unset: episodes that rollout plays"
    )
    ratio_tolerance: float | None = Field(
        default=0.1,
        gt=0,
        description="the run fails where the mean ratio of trainer to sampler at equal weights is further from 1; "
        "null: never",
    )
    sampler_ratio_cap: float = Field(default=2.0, ge=1, description="cap of the weight of tokens from older versions")
    schedule: Literal["linear", "constant"] = Field(
        default="constant", description="linear: the learning rate falls to 0 over the iterations"
    )
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-6)

    max_staleness: int = Field(default=0, ge=0, description="versions an episode may lag behind; 0: synchronous")
    deadline_seconds: float = Field(default=600.0, gt=0, description="from dispatch; then an episode is EXPIRED")
    grace_seconds: float = Field(default=15.0, ge=0, description="how long after a deadline its outcome may still come")
    serve_seconds: float = Field(default=180.0, gt=0, description="bound on every replica serving a new version")
    task_sampler: TaskSamplerConfig = TaskSamplerConfig()
    invalid: InvalidBound = InvalidBound()

    @field_validator("tasks")
    @classmethod
    def _distinct(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({task for task in tasks if tasks.count(task) > 1})
        if twice:
            raise ValueError(f"tasks given twice: {', '.join(twice)}")
        return tasks

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        held_out = self.held_out_seeds
        if held_out and held_out.first < self.seeds.end and self.seeds.first < held_out.end:
            raise ValueError(
                f"seeds {self.seeds.first}..{self.seeds.end - 1} and held_out_seeds "
                f"{held_out.first}..{held_out.end - 1} overlap; held-out seeds must never be trained on"
            )
        if self.official_release and not self.agent.compress_context:
            raise ValueError("official_release learns from prompts without past pages; set agent.compress_context")
        if self.official_release and self.method.name != "m-grpo":
            raise ValueError(f"official_release belongs to m-grpo, not to {self.method.name}")
        if self.seeds.count < self.groups:
            raise ValueError(f"seeds.count {self.seeds.count} is below groups {self.groups}; widen the seeds")
        return self


class CheckpointConfig(Config):
    """Saved states that a run resumes from."""

    every: int | None = Field(
        default=None,
        ge=1,
        description="iterations (RL) or epochs (BC) between checkpoints; unset: 1 for models below 1 GiB, else 5",
    )
    keep: int = Field(default=2, ge=1, description="newest checkpoints that are kept")


class PublishConfig(Config):
    """Policy versions."""

    uri: str | None = Field(
        default=None,
        description="prefix that versions are copied to and announced from, where replicas of inference share no "
        "directory with the trainer: s3://bucket/prefix or jetstream://host:port/bucket; unset: the run directory",
    )
    keep: int = Field(default=3, ge=2, description="newest versions that are kept, besides each phase's last")
    canaries: int = Field(default=1, ge=1, le=8, description="prompts in a version's proof")
    canary_tokens: int = Field(default=8, ge=1, le=64, description="greedy tokens of each canary")
    canary_tolerance: float = Field(default=0.1, gt=0, description="largest accepted difference of a log-probability")


class RunConfig(Config):
    """One run: behaviour cloning, reinforcement learning, or both in this order."""

    run_directory: Path = Field(description="everything of the run lies here; its name is the run's id")
    model: Path = Field(description="directory of the base model: config.json, safetensors")
    start_from: Path | None = Field(
        default=None,
        description="a version's or a checkpoint's directory, of any run: only its weights are taken, in place of the "
        "model's own. A run with checkpoints of its own resumes from them, in full",
    )
    seed: int = Field(default=0, ge=0)
    pause_between_phases: bool = Field(default=False, description="pause after cloning until ResumeRun")
    payloads: PayloadConfig | None = Field(default=None, description="unset: payloads/ in the run directory")
    deepspeed: DeepSpeedConfig = DeepSpeedConfig()
    bc: BcConfig | None = Field(default=None, description="unset: no cloning")
    rl: RlConfig | None = Field(default=None, description="unset: no reinforcement learning")
    checkpoints: CheckpointConfig = CheckpointConfig()
    publish: PublishConfig = PublishConfig()

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.bc is None and self.rl is None:
            raise ValueError("neither bc nor rl is configured; a run needs one of them")
        if self.pause_between_phases and self.bc is None:
            raise ValueError("pause_between_phases needs both bc and rl; bc is unset")
        return self


def check_run(run_id: str, config: RunConfig) -> None:
    """ConfigError if the run cannot be this one, or what it reads is not there."""
    if run_id != config.run_directory.name:
        raise ConfigError(f"run {run_id!r} must lie in a directory of that name, not in {config.run_directory}")
    if not (config.model / "config.json").is_file():
        raise ConfigError(f"model {config.model} holds no model (no config.json); prepare it or name another")
    if config.start_from is not None and not config.start_from.is_dir():
        raise ConfigError(f"start_from {config.start_from} is no directory; name a version's or a checkpoint's")
    if config.rl is not None and config.rl.stored is not None and not config.rl.stored.is_file():
        raise ConfigError(f"rl.stored {config.rl.stored} does not exist")
    if config.bc is not None and not config.bc.demonstrations.is_file():
        raise ConfigError(f"bc.demonstrations {config.bc.demonstrations} does not exist; record demonstrations first")


class TrainerConfig(Config):
    """The trainer process."""

    server: ServerConfig = ServerConfig(port=50055)
    telemetry: TelemetryConfig = TelemetryConfig()
    queue: QueueConfig = QueueConfig()
    rank_seconds: float = Field(default=3600.0, gt=0, description="bound on one rank's wait for another")
    run: RunConfig | None = Field(default=None, description="the run to do, then exit; unset: wait for StartRun")


def parse_run(text: str) -> RunConfig:
    """A run's configuration from YAML; ConfigError of one line if it is not valid."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the run's configuration is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError("the run's configuration must be a mapping")
    return validate(RunConfig, values, source="run configuration")
