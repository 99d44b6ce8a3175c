"""One training step on recorded rows: tokens per second, share of the machine's matmul rate, and peak memory.

    python benchmarks/trainer/step.py MODEL ARCHIVE.trajectories [--rows 64] [--dtype bfloat16] [--output FILE.json]

Two layouts of the same rows, each in a process of its own: `packed` is this trainer's; `padded` is what trainers for
chat use, one row a sequence with prompts padded on the left and replies on the right, the output head on the reply's
places only, in micro-batches of --micro rows of neighbouring length. Both take forward and backward passes of the
clipped loss at ratio 1, without the optimizer, which is the same for both.

FLOPs: 6 x non-embedding parameters x tokens + 6 x vocabulary x width x reply tokens + 12 x layers x width x pairs of
tokens of which one sees the other. `useful` counts each row's tokens as if nothing were shared or padded; `computed`
counts what a layout computes. The matmul rate is the best of square products of 2048 in the same type.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_trainer.model import load_model
from webagent_trainer.packing import pack_rows
from webagent_trainer.rows import Row

_SIZE = 2048
_REPEATS = 3


def recorded(path: Path, count: int) -> list[Row]:
    """The first `count` rows of scored episodes, whole groups as they came."""
    rows: list[Row] = []
    for trajectory in delimited.read(path, trajectory_pb2.Trajectory):
        if trajectory.verdict.outcome in {evaluator_pb2.OUTCOME_SUCCESS, evaluator_pb2.OUTCOME_FAILURE}:
            turns = [turn for turn in trajectory.turns if turn.reply_token_ids]
            rows += [Row(tuple(turn.prompt_token_ids), tuple(turn.reply_token_ids), (), ()) for turn in turns]
        if len(rows) >= count:
            break
    return rows[:count]


def matmul_rate(dtype: torch.dtype) -> float:
    """FLOP/s of the best of some square products."""
    left, right = (torch.randn(_SIZE, _SIZE, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - began)
    return 2 * _SIZE**3 / best


def loss_of(logprobs: Tensor) -> Tensor:
    """The clipped loss where the ratio is 1 and all advantages are."""
    ratio = torch.exp(logprobs - logprobs.detach())
    return -torch.minimum(ratio, ratio.clamp(0.8, 1.2)).sum()


def packed(model_path: Path, rows: Sequence[Row], dtype: torch.dtype, options: argparse.Namespace) -> dict[str, float]:
    """This trainer's layout."""
    model = load_model(model_path, dtype=dtype).train()
    packs = pack_rows(rows, budget=options.pack_tokens)

    def step() -> None:
        for pack in packs:
            loss_of(model(pack)[0]).backward()

    tokens = sum(len(pack.token_ids) for pack in packs)
    nodes = sum(len(pack.nodes) for pack in packs)
    pairs = sum(int((pack.positions + 1).sum()) for pack in packs)
    return measured(step, flops(model.causal_lm, tokens, nodes, pairs), tokens)


def padded(model_path: Path, rows: Sequence[Row], dtype: torch.dtype, options: argparse.Namespace) -> dict[str, float]:
    """Rows of a rectangle."""
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=dtype, attn_implementation="sdpa").train()
    order = sorted(rows, key=lambda row: len(row.context) + len(row.reply))
    batches = [_rectangle(order[start : start + options.micro]) for start in range(0, len(order), options.micro)]

    def step() -> None:
        for ids, mask, targets, wanted in batches:
            kept = targets.shape[1]
            output = model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=kept + 1)
            logits = output.logits[:, :-1].float()
            values = logits.gather(2, targets[:, :, None])[:, :, 0] - logits.logsumexp(-1)
            loss_of(values[wanted]).backward()

    tokens = sum(ids.numel() for ids, *_ in batches)
    heads = sum(targets.numel() for _, _, targets, _ in batches)
    pairs = sum(ids.shape[0] * ids.shape[1] * (ids.shape[1] + 1) // 2 for ids, *_ in batches)
    return measured(step, flops(model, tokens, heads, pairs), tokens)


def _rectangle(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    left, right = max(len(row.context) for row in rows), max(len(row.reply) for row in rows)
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        span = slice(left - len(row.context), left + len(row.reply))
        ids[place, span] = torch.tensor([*row.context, *row.reply])
        mask[place, span] = 1
    return ids, mask, ids[:, left:], mask[:, left:].bool()


def flops(model: torch.nn.Module, tokens: int, replies: int, pairs: int) -> float:
    """As the module's docstring counts them."""
    config = model.config
    embedding = config.vocab_size * config.hidden_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    body = parameters - embedding * (1 if config.tie_word_embeddings else 2)
    attention = 12 * config.num_hidden_layers * config.hidden_size * pairs
    return float(6 * body * tokens + 6 * embedding * replies + attention)


def measured(step: Callable[[], None], computed: float, tokens: int) -> dict[str, float]:
    """The fastest of some steps, after one to warm up."""
    step()
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": best, "computed_flops": computed, "computed_tokens": tokens, "peak_gib": peak / 2**30}


def report(layout: str, options: argparse.Namespace) -> dict[str, float]:
    """One layout in a fresh process."""
    arguments = [sys.executable, __file__, str(options.model), str(options.archive), "--layout", layout]
    for name in ("rows", "dtype", "micro", "pack_tokens"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures both layouts and prints them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--pack-tokens", type=int, default=2048)
    parser.add_argument("--layout", choices=["packed", "padded"], help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = recorded(options.archive, options.rows)
    dtype = getattr(torch, options.dtype)
    if options.layout:
        layout = {"packed": packed, "padded": padded}[options.layout]
        print(json.dumps(layout(options.model, rows, dtype, options)))
        return
    useful = sum(len(row.context) + len(row.reply) for row in rows)
    rate = matmul_rate(dtype)
    found = {name: report(name, options) for name in ("packed", "padded")}
    for values in found.values():
        values["useful_tokens_per_second"] = useful / values["seconds"]
        values["matmul_share"] = values["computed_flops"] / values["seconds"] / rate
    times = found["padded"]["seconds"] / found["packed"]["seconds"]
    result = {"rows": len(rows), "useful_tokens": useful, "matmul_flops_per_second": rate, **found, "times": times}
    print(json.dumps(result, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
