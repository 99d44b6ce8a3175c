"""Steps of TRL's GRPOTrainer on given rows, for step.py; it runs where TRL is installed and imports nothing of ours.

    python trl_step.py MODEL ROWS.json [--micro 8] [--repeats 3] [--dtype bfloat16] [--checkpointing]

Everything is TRL's own with its defaults (float32 weights, computing in --dtype by autocast; no KL term) but for two
things: gradient checkpointing is off unless asked for, and where it would generate replies and score them, it is handed
the recorded rows. It then shuffles them, cuts them into micro-batches of --micro, and takes one optimizer step on all.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Recorded(GRPOTrainer):
    """Learns from rows that were sampled elsewhere."""

    rows: list[dict[str, Any]]

    def _generate_and_score_completions(self, inputs: object) -> dict[str, torch.Tensor]:
        device = self.accelerator.device
        left, right = (max(len(row[part]) for row in self.rows) for part in ("context", "reply"))
        prompts, replies = (torch.zeros(len(self.rows), width, dtype=torch.long) for width in (left, right))
        prompt_mask, reply_mask = torch.zeros_like(prompts), torch.zeros_like(replies)
        for place, row in enumerate(self.rows):
            context, reply = row["context"], row["reply"]
            prompts[place, left - len(context) :] = torch.tensor(context)
            prompt_mask[place, left - len(context) :] = 1
            replies[place, : len(reply)] = torch.tensor(reply)
            reply_mask[place, : len(reply)] = 1
        tensors = {
            "prompt_ids": prompts,
            "prompt_mask": prompt_mask,
            "completion_ids": replies,
            "completion_mask": reply_mask,
            "advantages": torch.tensor([row["advantage"] for row in self.rows]),
            "num_items_in_batch": reply_mask.sum(),
        }
        return {name: tensor.to(device) for name, tensor in tensors.items()}


class Watch(TrainerCallback):
    """How long each step takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: object, **__: object) -> None:
        """An optimizer step begins."""
        self._began = time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        """It has ended."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._began)


def tokenizer() -> PreTrainedTokenizerFast:
    """One that the trainer can hold; nothing is ever tokenized."""
    words = models.WordLevel({"<pad>": 0, "<eos>": 1, "x": 2}, unk_token="<pad>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="<eos>")


def main() -> None:
    """Prints seconds of a step and peak memory as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text())
    if len(rows) % options.micro:
        raise SystemExit(f"--micro {options.micro} does not divide {len(rows)} rows")
    watch = Watch()
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=options.micro,
            gradient_accumulation_steps=len(rows) // options.micro,
            num_generations=2,
            max_steps=1 + options.repeats,
            learning_rate=1e-12,
            bf16=options.dtype == "bfloat16",
            gradient_checkpointing=options.checkpointing,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            logging_steps=10**6,
        )
        trainer = Recorded(
            model=str(options.model),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "x"}] * len(rows) * (1 + options.repeats)),
            processing_class=tokenizer(),
            callbacks=[watch],
        )
        trainer.rows = rows
        trainer.train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 2**30
    left, right = (max(len(row[part]) for row in rows) for part in ("context", "reply"))
    computed = len(rows) * (left + right)
    print(json.dumps({"seconds": min(watch.seconds[1:]), "computed_tokens": float(computed), "peak_gib": peak}))


if __name__ == "__main__":
    main()
