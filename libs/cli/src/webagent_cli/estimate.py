"""How much memory a configuration will take: arithmetic on the model's size, nothing is loaded.

Mixed-precision Adam keeps, for each parameter, 2 bytes of weights, 4 of gradients and 12 of fp32 state (master copy,
two moments); the reference policy 2 more. ZeRO shards them over the ranks and offload moves the state to the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from webagent_cli.config import LoopConfig, ModelShape

GIB = 2**30
BYTES_BF16 = 2
BYTES_GRADIENT = 4
BYTES_ADAM = 12
ZERO_SHARDS_GRADIENTS = 2
ZERO_SHARDS_WEIGHTS = 3
BROWSER_SESSION_GIB = 0.12
RUNTIME_GIB = 0.8
# Tensors of the residual stream's width that one layer keeps for its backward pass.
ACTIVATIONS_OF_A_LAYER = 18


@dataclass(frozen=True)
class Need:
    """Memory of one part, in GiB, on one accelerator and on the host."""

    part: str
    device: float
    host: float


def _number(block: object, key: str, default: float) -> float:
    value = block.get(key, default) if isinstance(block, Mapping) else default
    return float(value) if isinstance(value, int | float) else default


def trainer_parts(shape: ModelShape, config: LoopConfig) -> list[Need]:
    """What one rank of the trainer keeps, part by part."""
    engine = config.deepspeed
    ranks = engine.ranks * engine.nodes
    whole = shape.parameters * BYTES_BF16
    state = shape.parameters * BYTES_ADAM / ranks
    gradients = shape.parameters * BYTES_GRADIENT
    grpo = config.rl.method.get("name", "m-grpo") == "m-grpo"
    kept_layers = 1 if engine.gradient_checkpointing else ACTIVATIONS_OF_A_LAYER
    # One residual stream a layer (or all that the backward pass reads), one layer in work, the replies' logits.
    streams = shape.layers * kept_layers + ACTIVATIONS_OF_A_LAYER
    activations = engine.pack_tokens * shape.hidden_size * BYTES_BF16 * streams
    activations += config.agent.max_reply_tokens * shape.vocab_size * 4
    offload = engine.offload_optimizer
    parts = {
        "weights": (whole / (ranks if engine.zero_stage >= ZERO_SHARDS_WEIGHTS else 1), 0.0),
        "gradients": (gradients / (ranks if engine.zero_stage >= ZERO_SHARDS_GRADIENTS else 1), 0.0),
        "optimizer": (0.0, state) if offload else (state, 0.0),
        # A whole copy on every rank, whatever is sharded.
        "reference policy": (whole if grpo and config.rl.kl_coefficient > 0 else 0.0, 0.0),
        # What a version's proof gathers is there before the next step begins.
        "activations": (max(activations, whole if engine.zero_stage >= ZERO_SHARDS_WEIGHTS else 0.0), 0.0),
        # Read whole by every rank before it is sharded.
        "runtime, loading": (0.0, RUNTIME_GIB * GIB + whole),
    }
    return [Need(f"  {name}", device / GIB, host / GIB) for name, (device, host) in parts.items()]


def _trainer(shape: ModelShape, config: LoopConfig) -> Need:
    parts = trainer_parts(shape, config)
    return Need("trainer, each rank", sum(part.device for part in parts), sum(part.host for part in parts))


def _inference(shape: ModelShape, config: LoopConfig) -> Need:
    engine = config.stack.inference.get("engine")
    parallel = _number(engine, "tensor_parallel", 1)
    length = _number(engine, "max_context", 4096)
    cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * BYTES_BF16 * length * config.eval.concurrency
    return Need("inference, each rank", (shape.parameters * BYTES_BF16 + cache) / parallel / GIB, RUNTIME_GIB)


def estimate(shape: ModelShape, config: LoopConfig) -> list[Need]:
    """What each part will take."""
    sessions = _number(config.stack.env.get("sessions"), "capacity", config.eval.concurrency)
    return [
        _trainer(shape, config),
        _inference(shape, config),
        Need("env (browsers)", 0.0, RUNTIME_GIB + sessions * BROWSER_SESSION_GIB),
        Need("rollout, evaluator, NATS", 0.0, 0.4),
    ]
