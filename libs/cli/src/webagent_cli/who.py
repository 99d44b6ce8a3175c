"""Who plays an evaluation: the base model, a run's newest policy, somebody else's endpoint, the experts, or chance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_runtime.config import ConfigError

from webagent_cli.config import LoopConfig
from webagent_cli.episodes import Player, Policy
from webagent_cli.runs import Run
from webagent_cli.versions import newest_version

SERVICES = ("env", "inference", "evaluator", "rollout")
MAX_NAME_CHARACTERS = 30


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible API, such as https://host/v1."""

    url: str
    model: str = ""
    key_file: Path | None = None


@dataclass(frozen=True)
class Who:
    """One of them; `greedy` is for those that sample."""

    run: str | None = None
    policy: Policy = "sampled"
    endpoint: Endpoint | None = None
    greedy: bool = False

    def services(self) -> tuple[str, ...]:
        """What has to run; a run's policy comes over the queue."""
        return ("nats", *SERVICES) if self.run and self.policy == "sampled" else SERVICES

    def served(self, config: LoopConfig) -> LoopConfig:
        """The configuration with the inference that this one needs: none of its own loads a model for nothing."""
        if self.endpoint is not None:
            key = None if self.endpoint.key_file is None else str(self.endpoint.key_file.resolve())
            there = {"base_url": self.endpoint.url, "model": self.endpoint.model, "api_key_file": key}
            # What the file says of the endpoint stays, such as fields to send besides.
            said = config.stack.inference.get("openai")
            there = {**(said if isinstance(said, dict) else {}), **there}
            return _with_inference(config, {"backend": "openai", "model": {"path": None}, "openai": there})
        if self.policy != "sampled":
            return _with_inference(config, {"backend": "scripted", "model": {"path": None}})
        return config

    def player(self, here: Run, config: LoopConfig, *, suffix: str = "", sample: int = 0) -> Player:
        """The player, under a phase's name that says who it is."""
        version = newest_version(here) if self.run and self.policy == "sampled" else 0
        temperature = 0.0 if self.greedy else config.eval.temperature
        name = f"v{version}_t{temperature:g}"
        if self.endpoint is not None:
            model = re.sub(r"[^A-Za-z0-9.-]+", "-", self.endpoint.model)[:MAX_NAME_CHARACTERS]
            name = f"{model or 'endpoint'}_t{temperature:g}"
        elif self.policy != "sampled":
            name = self.policy
        return Player(
            here.id,
            name + suffix,
            config,
            policy=self.policy,
            temperature=temperature,
            min_version=version,
            sample=sample,
        )


def who_of(
    *,
    run: str | None,
    expert: bool,
    chance: bool,
    endpoint: str | None,
    model: str,
    key_file: Path | None,
    greedy: bool,
) -> Who:
    """As the options say, which must name one at most."""
    if sum((expert, chance, endpoint is not None)) > 1 or (run and endpoint):
        raise ConfigError("one plays: choose among --run, --endpoint, --expert and --random")
    if endpoint is None and (model or key_file):
        raise ConfigError("--model and --key-file belong to --endpoint")
    return Who(
        run=run,
        policy="expert" if expert else "random" if chance else "sampled",
        endpoint=Endpoint(endpoint, model, key_file) if endpoint is not None else None,
        greedy=greedy,
    )


def _with_inference(config: LoopConfig, inference: dict[str, Any]) -> LoopConfig:
    return config.model_copy(update={"stack": config.stack.model_copy(update={"inference": inference})})
