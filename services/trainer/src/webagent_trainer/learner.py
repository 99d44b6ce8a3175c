"""One rank's share of the policy: a DeepSpeed engine, and the frozen reference beside it.

Every public method is collective: all ranks call it with the same arguments, and rank 0's return value counts. An
optimizer step is one call of `learn`, however many packs its rows make; gradients are summed in float32 and the rows'
weights are the loss's only normalization.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor

from webagent_trainer.batches import LearningRow, per_token, share_out, token_advantages, token_weights
from webagent_trainer.canary import Continuation, continue_greedily
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.insight import PULLS, pull_sums
from webagent_trainer.lora import add_adapters, exported, merged, without_adapters
from webagent_trainer.loss import TokenLoss, cloning_loss, grpo_loss, kl_fit_loss, policy_pull, sampler_weights
from webagent_trainer.model import PackedModel, load_model
from webagent_trainer.packing import Pack

# Summed over the rows of a step.
SUMS = (
    *("loss", "tokens", "kl", "clipped", "surprise", "computed", "entropy", "entropy_tokens"),
    *("ratio", "ratio_squares", "ratio_tokens", *PULLS),
)


@dataclass(frozen=True, slots=True)
class Objective:
    """Which loss `learn` takes a step on."""

    cloning: bool = False
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coefficient: float = 0.0
    kl_corrected: bool = False
    sampler_ratio_cap: float = 2.0
    # Above 0: log pi / pi_ref is fitted to the advantage, and nothing is clipped.
    kl_strength: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """Sums over all rows of one step, its gradient's length and the largest |log ratio| to the sampler."""

    sums: dict[str, float]
    gradient_norm: float
    max_log_ratio: float


class Learner:
    """The policy, its optimizer and its reference."""

    def __init__(self, config: DeepSpeedConfig) -> None:
        self._config = config
        self._rank = dist.get_rank()
        self._ranks = dist.get_world_size()
        self._engine: Any = None
        self._reference: PackedModel | None = None
        self._temperature = 1.0
        self._stage: int = config.zero_stage
        self._max_norm = 1.0
        if config.threads is not None:
            torch.set_num_threads(config.threads)

    def open(self, model: str, reference: str | None, optimizer: OptimizerConfig, temperature: float) -> None:
        """Loads the policy with a fresh optimizer, and the reference policy if there is one."""
        self.close()
        dtype = compute_dtype(self._config)
        policy = load_model(Path(model), dtype=dtype)
        if self._config.lora is not None:
            add_adapters(policy.causal_lm, self._config.lora)
        if self._config.gradient_checkpointing:
            policy.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
        policy.train()
        self._temperature = temperature
        self._stage = _stage(self._config, dtype, self._ranks)
        self._max_norm = optimizer.max_gradient_norm
        self._engine = _initialize(policy, self._config, self._stage, optimizer)
        # With adapters, the policy without them is the reference.
        if reference is not None and self._config.lora is None:
            self._reference = load_model(Path(reference), dtype=dtype).to(self._engine.device)
            self._reference.requires_grad_(False)

    def close(self) -> None:
        """Frees the policy, the optimizer and the reference. Idempotent."""
        if self._engine is not None:
            self._engine.destroy()
        self._engine = self._reference = None
        gc.collect()

    def logprobs(self, rows: Sequence[LearningRow], reference: bool = False) -> list[tuple[float, ...]]:
        """The log-probability of each reply token of each row, under the policy or its reference."""
        bare = reference and self._config.lora is not None
        model: Any = self._reference if reference and not bare else self._engine
        index = {id(row): place for place, row in enumerate(rows)}
        own: dict[int, tuple[float, ...]] = {}
        with torch.no_grad(), without_adapters(self._engine.module) if bare else nullcontext():
            for pack, members in self._share(rows):
                values = model(pack, self._temperature)[0].cpu().split(pack.reply_lengths)
                for row, value in zip(members, values, strict=True):
                    # Fillers are copies and not looked for.
                    if id(row) in index:
                        own[index[id(row)]] = tuple(value.tolist())
        found = own if self._ranks == 1 else self._merge(own)
        return [found[place] for place in range(len(rows))]

    def states(self, rows: Sequence[LearningRow]) -> Tensor:
        """The policy's hidden state at the end of each row's context, [rows, width], float32."""
        index = {id(row): place for place, row in enumerate(rows)}
        own: dict[int, tuple[float, ...]] = {}
        with torch.no_grad():
            for pack, members in self._share(rows):
                values = self._engine(pack, self._temperature, states=True)[0].tolist()
                own |= {index[id(row)]: tuple(v) for row, v in zip(members, values, strict=True) if id(row) in index}
        found = own if self._ranks == 1 else self._merge(own)
        return torch.tensor([found[place] for place in range(len(rows))])

    def learn(self, rows: Sequence[LearningRow], objective: Objective, learning_rate: float) -> StepReport:
        """One optimizer step on the sum of the rows' losses."""
        sums = dict.fromkeys(SUMS, 0.0)
        widest = 0.0
        for pack, members in self._share(rows):
            logprobs, entropies = self._engine(pack, self._temperature)
            loss, report, spread = _pack_loss(logprobs, members, objective)
            # DeepSpeed averages gradients over ranks; the weights ask for their sum.
            self._engine.backward(loss * self._ranks, scale_wrt_gas=False)
            if any(row.weight for row in members):
                report |= {"loss": loss.item(), "computed": float(len(pack.token_ids))}
                report |= {"entropy": entropies.sum().item(), "entropy_tokens": float(len(entropies))}
                sums = {name: value + report.get(name, 0.0) for name, value in sums.items()}
                widest = max(widest, spread)
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        norm = self._step()
        sums, widest = self._combine(sums, widest)
        return StepReport(sums, norm, widest)

    def weights(self) -> dict[str, Tensor]:
        """The policy's tensors as it computes with them, under the base model's names, on rank 0; empty elsewhere."""
        tensors: dict[str, Tensor] = {}
        for name, parts, scale in exported(self._engine.module.causal_lm):
            with deepspeed.zero.GatheredParameters(parts, enabled=self._stage == 3):
                if self._rank == 0:
                    if any(part.numel() == 0 for part in parts):
                        raise RuntimeError(f"{name} is empty: its shards were not gathered")
                    # A copy: training goes on while these are written.
                    tensors[name] = merged(parts, scale)
        return tensors

    def continuations(
        self, prompts: Sequence[Sequence[int]], wanted: int, length: int, margin: float
    ) -> list[Continuation]:
        """What the policy says greedily after `wanted` of the prompts; prompts after which it is unsure come last."""
        model = self._engine.module.causal_lm
        found: list[Continuation] = []
        # With gradient checkpointing, a model in training keeps no cache.
        model.eval()
        try:
            with (
                torch.no_grad(),
                deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=self._stage == 3),
            ):
                for prompt in prompts:
                    found.append(continue_greedily(model, prompt, length=length, margin=margin))
                    if sum(len(one.tokens) * 2 >= length for one in found) == wanted:
                        break
        finally:
            model.train()
        return sorted(found, key=lambda one: -len(one.tokens))[:wanted]

    def save(self, directory: str) -> None:
        """Writes parameters and optimizer for `restore`."""
        self._engine.save_checkpoint(directory, tag="engine")

    def restore(self, directory: str) -> None:
        """Reads what `save` wrote, with the same number of ranks."""
        loaded, _ = self._engine.load_checkpoint(directory, tag="engine")
        if loaded is None:
            raise RuntimeError(f"{directory} holds no engine state")

    def _share(self, rows: Sequence[LearningRow]) -> list[tuple[Pack, list[LearningRow]]]:
        return share_out(rows, budget=self._config.pack_tokens, ranks=self._ranks)[self._rank]

    def _merge(self, own: dict[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
        parts: list[dict[int, tuple[float, ...]]] = [{} for _ in range(self._ranks)]
        dist.all_gather_object(parts, own)
        return {place: values for part in parts for place, values in part.items()}

    def _step(self) -> float:
        """Updates the parameters and returns the length that the gradient had."""
        if self._stage > 0:
            self._engine.step()
            return float(self._engine.get_global_grad_norm())
        # Without ZeRO, DeepSpeed clips but does not say what.
        norm = torch.nn.utils.clip_grad_norm_(self._engine.module.parameters(), self._max_norm)
        self._engine.step()
        return norm.item()

    def _combine(self, sums: dict[str, float], widest: float) -> tuple[dict[str, float], float]:
        if self._ranks == 1:
            return sums, widest
        added = torch.tensor(list(sums.values()), dtype=torch.float64, device=self._engine.device)
        most = torch.tensor(widest, dtype=torch.float64, device=self._engine.device)
        dist.all_reduce(added)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return dict(zip(sums, added.tolist(), strict=True)), most.item()


def compute_dtype(config: DeepSpeedConfig) -> torch.dtype:
    """The configured type; of itself bfloat16, but float32 on a CPU without tile units."""
    bf16 = config.bf16
    if bf16 is None:
        bf16 = torch.cuda.is_available() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if bf16 else torch.float32


def _stage(config: DeepSpeedConfig, dtype: torch.dtype, ranks: int) -> int:
    """The configured stage, but 0 where one rank in float32 would only keep copies: a step is four times as fast."""
    copies = ranks == 1 and dtype == torch.float32 and config.zero_stage < 3 and not config.offload_optimizer
    return 0 if copies else config.zero_stage


def _initialize(policy: PackedModel, config: DeepSpeedConfig, stage: int, optimizer: OptimizerConfig) -> Any:
    adamw = torch.optim.AdamW(
        [parameter for parameter in policy.parameters() if parameter.requires_grad],
        lr=optimizer.learning_rate,
        betas=(optimizer.beta1, optimizer.beta2),
        weight_decay=optimizer.weight_decay,
        fused=True,
    )
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": False}
    if config.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # One step per call of `learn`, after as many backward passes as there are packs.
        "managed_gradient_accumulation": False,
        "bf16": {"enabled": compute_dtype(config) == torch.bfloat16},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": optimizer.max_gradient_norm if stage else 0.0,
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(model=policy, optimizer=adamw, config=settings)
    return engine


def _pack_loss(
    logprobs: Tensor, rows: Sequence[LearningRow], objective: Objective
) -> tuple[Tensor, dict[str, float], float]:
    """The pack's loss, its sums for the report, and its largest |log ratio| to the sampler at equal versions."""
    device = logprobs.device
    weights = token_weights(rows).to(device)
    if objective.cloning:
        loss, report = cloning_loss(logprobs, weights)
        return loss, report, 0.0
    if objective.kl_strength:
        loss, report = kl_fit_loss(
            logprobs,
            per_token([row.reference for row in rows]).to(device),
            [len(row.reply) for row in rows],
            advantages=[row.advantage for row in rows],
            weights=[row.weight for row in rows],
            strength=objective.kl_strength,
        )
        return loss, report, 0.0
    sampler = per_token([row.sampler for row in rows]).to(device)
    stale = torch.tensor([flag for row in rows for flag in row.stale], device=device)
    # Without a value from when the batch began this is the batch's only step, which begins now.
    old = per_token([row.old for row in rows]).to(device) if rows[0].old else logprobs.detach()
    reference = per_token([row.reference for row in rows]).to(device) if rows[0].reference else None
    tokens = TokenLoss(
        weights=weights,
        advantages=token_advantages(rows).to(device),
        old=old,
        sampler_weights=sampler_weights(old, sampler, stale, cap=objective.sampler_ratio_cap),
        reference=reference,
    )
    loss, report = grpo_loss(
        logprobs,
        tokens,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        kl_coefficient=objective.kl_coefficient,
        kl_corrected=objective.kl_corrected,
    )
    report |= pull_sums(policy_pull(logprobs, tokens, clip_low=objective.clip_low, clip_high=objective.clip_high), rows)
    gaps = (logprobs.detach() - sampler)[~stale]
    ratios = gaps.exp()
    report |= {"ratio": ratios.sum().item(), "ratio_squares": ratios.square().sum().item()}
    report["ratio_tokens"] = float(gaps.numel())
    return loss, report, gaps.abs().max().item() if gaps.numel() else 0.0
