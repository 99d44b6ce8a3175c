"""Forward and backward over the rows of recorded episodes: packed, and one row at a time.

    python benchmarks/trainer_packing.py MODEL [FILE.trajectories] [--rows N] [--pack-tokens N]

Without a file it makes groups of eight episodes that share a prompt of 300 tokens and half of each reply of 16. Both
ways run twice; the second time counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_trainer.chance import seeded
from webagent_trainer.config import DeepSpeedConfig
from webagent_trainer.learner import compute_dtype
from webagent_trainer.model import PackedModel, load_model
from webagent_trainer.packing import Pack, pack_rows, stream_length
from webagent_trainer.rows import Row


def recorded_rows(path: Path) -> list[Row]:
    """Rows of a file's episodes, group by group."""
    trajectories = sorted(delimited.read(path, trajectory_pb2.Trajectory), key=lambda each: each.group_id)
    turns = [turn for trajectory in trajectories for turn in trajectory.turns if turn.reply_token_ids]
    return [Row(tuple(turn.prompt_token_ids), tuple(turn.reply_token_ids), (), ()) for turn in turns]


def made_rows() -> list[Row]:
    """Four groups of eight."""
    chance = seeded("benchmark")

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(100, 10_000) for _ in range(count))

    system = tokens(100)
    groups = [(system + tokens(200), tokens(8)) for _ in range(4)]
    return [Row(context, beginning + tokens(8), (), ()) for context, beginning in groups for _ in range(8)]


def seconds(model: PackedModel, packs: Sequence[Pack]) -> float:
    """Of a forward and backward pass over all packs."""
    for _ in range(2):
        began = time.monotonic()
        for pack in packs:
            (-model(pack)[0].mean()).backward()
        taken = time.monotonic() - began
    return taken


def main() -> None:
    """Prints one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--pack-tokens", type=int, default=DeepSpeedConfig().pack_tokens)
    options = parser.parse_args()
    rows = (recorded_rows(options.file) if options.file else made_rows())[: options.rows]
    model = load_model(options.model, dtype=compute_dtype(DeepSpeedConfig())).train()
    ways = {
        "packed": pack_rows(rows, budget=options.pack_tokens),
        "one by one": [pack for row in rows for pack in pack_rows([row], budget=options.pack_tokens)],
    }
    print(f"{len(rows)} rows, {torch.get_num_threads()} threads, {next(model.parameters()).dtype}")
    for name, packs in ways.items():
        taken, tokens = seconds(model, packs), stream_length(packs)
        rates = f"{len(rows) / taken:5.2f} rows/s, {tokens / taken:4.0f} tokens/s"
        print(f"{name:>10}: {tokens:6} tokens, {taken:6.2f} s, {rates}")


if __name__ == "__main__":
    main()
