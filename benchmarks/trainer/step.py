"""One training step on the rows of one recorded iteration: this trainer's, its rows one by one, and TRL's.

    python benchmarks/trainer/step.py MODEL ARCHIVE.trajectories [--rows 64] [--skip-groups 0] [--dtype bfloat16]
        [--layouts packed alone trl] [--checkpointing] [--trl-venv DIRECTORY] [--output FILE.json] [--dry-run]

The rows are those that a run learned from, group by group in the order in which they came: of scored episodes in groups
whose rewards vary. Each layout has a process of its own and takes whole steps: forward, backward, AdamW.

    packed  Learner.learn as a run calls it: what rows share is computed once, nothing is padded
    alone   the same with one row a pack
    trl     GRPOTrainer.train, its generation replaced by the recorded rows; see trl_step.py. It runs in a virtual
            environment that this command makes, which adds TRL to the torch and transformers of this one

useful tokens per second   the rows' tokens, each counted in full, over a step's seconds: the same numerator for all
matmul_share               FLOPs that a layout computes in forward and backward, over their seconds and over the rate of
                           the best of some square products of 2048 in the same type. FLOPs: 6 x non-embedding
                           parameters x tokens + 6 x vocabulary x width x places whose next token is wanted +
                           12 x layers x width x pairs of tokens of which one sees the other
peak_gib                   the process's largest resident memory, or on a GPU its largest allocation

Times are the fastest of --repeats steps, after one to warm up.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from sysconfig import get_path
from typing import Any

import torch
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_trainer.advantage import group_advantages, has_variance
from webagent_trainer.batches import LearningRow
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.crew import Crew, join
from webagent_trainer.learner import Objective
from webagent_trainer.model import load_model
from webagent_trainer.packing import Pack, pack_rows

TRL = "trl==1.16.0"
LAYOUTS = ("packed", "alone", "trl")
# Too small to change a weight: every step then computes the same.
_RATE = 1e-12
_SIZE = 2048


def recorded(path: Path, skip: int, count: int) -> list[dict[str, Any]]:
    """Context, reply and advantage of the first `count` rows after `skip` groups."""
    groups: dict[str, list[trajectory_pb2.Trajectory]] = {}
    for trajectory in delimited.read(path, trajectory_pb2.Trajectory):
        if trajectory.status == trajectory_pb2.EPISODE_STATUS_SCORED and trajectory.turns:
            groups.setdefault(trajectory.group_id, []).append(trajectory)
    live = [group for group in groups.values() if has_variance([one.reward for one in group], tolerance=1e-6)]
    rows = [row for group in live[skip:] for row in _group_rows(group)]
    if len(rows) < count:
        raise SystemExit(f"{path} holds {len(rows)} rows of such groups, fewer than --rows {count}")
    return rows[:count]


def _group_rows(group: Sequence[trajectory_pb2.Trajectory]) -> list[dict[str, Any]]:
    advantages = group_advantages([one.reward for one in group])
    return [
        {"context": list(turn.prompt_token_ids), "reply": list(turn.reply_token_ids), "advantage": advantage}
        for one, advantage in zip(group, advantages, strict=True)
        for turn in one.turns
        if turn.reply_token_ids
    ]


def own_steps(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> dict[str, float]:
    """Steps of this trainer, and its forward and backward passes by themselves."""
    learning = [
        LearningRow(
            context=tuple(row["context"]),
            reply=tuple(row["reply"]),
            weight=1.0 / (len(rows) * len(row["reply"])),
            advantage=row["advantage"],
            turns=1,
            sampler=(-1.0,) * len(row["reply"]),
            stale=(True,) * len(row["reply"]),
        )
        for row in rows
    ]
    budget = options.pack_tokens if options.layout == "packed" else 1
    config = DeepSpeedConfig(
        bf16=options.dtype == "bfloat16", pack_tokens=budget, gradient_checkpointing=options.checkpointing
    )
    join(600)
    crew = Crew()
    crew.begin(config)
    crew.open(str(options.model), None, OptimizerConfig(learning_rate=_RATE), 1.0)
    seconds = fastest(lambda: crew.learn(learning, Objective(), _RATE), options.repeats)
    found = {"seconds": seconds, "peak_gib": peak()}
    crew.close()
    packs = pack_rows(learning, budget=budget)
    return found | passes(options.model, packs, getattr(torch, options.dtype), options.repeats)


def passes(path: Path, packs: Sequence[Pack], dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """Forward and backward alone, and what they compute."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(path, dtype=dtype).train().to(device)

    def once() -> None:
        for pack in packs:
            (-model(pack)[0].sum()).backward()

    tokens = sum(len(pack.token_ids) for pack in packs)
    wanted = sum(len(pack.nodes) for pack in packs)
    pairs = sum(int((pack.positions + 1).sum()) for pack in packs)
    seconds = fastest(once, repeats)
    share = flops(model.causal_lm, tokens, wanted, pairs) / seconds / matmul_rate(dtype, device)
    return {"computed_tokens": float(tokens), "pass_seconds": seconds, "matmul_share": share}


def flops(model: torch.nn.Module, tokens: int, wanted: int, pairs: int) -> float:
    """As the module's docstring counts them."""
    config: Any = model.config
    embedding = config.vocab_size * config.hidden_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    body = parameters - embedding * (1 if config.tie_word_embeddings else 2)
    attention = 12 * config.num_hidden_layers * config.hidden_size * pairs
    return float(6 * body * tokens + 6 * embedding * wanted + attention)


def matmul_rate(dtype: torch.dtype, device: str) -> float:
    """FLOP/s of the best of some square products."""
    left, right = (torch.randn(_SIZE, _SIZE, dtype=dtype, device=device) for _ in range(2))
    return 2 * _SIZE**3 / fastest(lambda: left @ right, 5)


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some calls, after one to warm up."""
    found = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return min(found[1:])


def peak() -> float:
    """GiB of this process so far."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trl_python(directory: Path) -> Path:
    """The interpreter of TRL's environment, made if it is not there."""
    python = directory / "bin" / "python"
    if not (directory / "ready").is_file():
        venv.create(directory, with_pip=True, clear=True)
        # This environment's packages are found behind its own, so that both sides compute with the same torch; but
        # not vLLM, which TRL would load for nothing and which would count as TRL's memory.
        inside = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        Path(inside.stdout.strip(), "behind.pth").write_text(
            f"{get_path('purelib')}\nimport sys; sys.modules['vllm'] = None\n"
        )
        subprocess.run([python, "-m", "pip", "install", "-q", TRL], check=True)
        (directory / "ready").touch()
    return python


def command(layout: str, rows: Path, options: argparse.Namespace) -> list[str]:
    """What measures one layout."""
    settings = ["--dtype", options.dtype, "--repeats", str(options.repeats)]
    settings += ["--checkpointing"] * options.checkpointing
    if layout == "trl":
        program = Path(__file__).with_name("trl_step.py")
        python = str(options.trl_venv / "bin" / "python")
        return [python, str(program), str(options.model), str(rows), "--micro", str(options.micro), *settings]
    own = [sys.executable, __file__, str(options.model), str(rows), "--layout", layout]
    return [*own, "--pack-tokens", str(options.pack_tokens), *settings]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All layouts, one after the other, and how they compare."""
    rows = recorded(options.archive, options.skip_groups, options.rows)
    useful = sum(len(row["context"]) + len(row["reply"]) for row in rows)
    found: dict[str, Any] = {
        "rows": len(rows),
        "useful_tokens": useful,
        "reply_tokens": sum(len(row["reply"]) for row in rows),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {name: version(name) for name in ("torch", "transformers", "deepspeed")} | {"trl": TRL},
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rows.json"
        path.write_text(json.dumps(rows))
        for layout in options.layouts:
            if layout == "trl":
                trl_python(options.trl_venv)
            print(" ".join(command(layout, path, options)), file=sys.stderr)
            done = subprocess.run(command(layout, path, options), check=True, stdout=subprocess.PIPE, text=True)
            values = json.loads(done.stdout.splitlines()[-1])
            values["useful_tokens_per_second"] = useful / values["seconds"]
            found[layout] = values
    for other in ("alone", "trl"):
        if {"packed", other} <= found.keys():
            found[f"times_{other}"] = found[other]["seconds"] / found["packed"]["seconds"]
            found[f"memory_of_{other}"] = found["packed"]["peak_gib"] / found[other]["peak_gib"]
    return found


def main() -> None:
    """Measures the layouts and prints them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--skip-groups", type=int, default=0, help="groups that are left out at the beginning")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing, on both sides")
    parser.add_argument("--micro", type=int, default=8, help="rows of one of TRL's micro-batches; divides --rows")
    parser.add_argument("--pack-tokens", type=int, default=DeepSpeedConfig().pack_tokens)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--trl-venv", type=Path, default=Path("~/.cache/webagent-trl").expanduser())
    parser.add_argument("--layout", choices=LAYOUTS[:2], help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and measure nothing")
    options = parser.parse_args()
    if options.layout:
        print(json.dumps(own_steps(json.loads(options.archive.read_text()), options)))
    elif options.dry_run:
        for layout in options.layouts:
            print(" ".join(command(layout, Path("ROWS.json"), options)))
    else:
        text = json.dumps(measure(options), indent=2)
        print(text)
        if options.output is not None:
            options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
