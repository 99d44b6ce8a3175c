"""Two ranks with gloo and ZeRO-3 compute what one rank computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from webagent_runtime.testing import free_port

PROGRAM = """
import json, sys
from webagent_trainer.batches import LearningRow
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.crew import Crew, follow, join
from webagent_trainer.learner import Objective

model, stage, output = sys.argv[1:]
if join(60):
    follow()
    sys.exit()
rows = [LearningRow(tuple(range(3, 15 + n)), (5, 6 + n), weight=0.1) for n in range(5)]
crew = Crew()
crew.begin(DeepSpeedConfig(threads=1, zero_stage=int(stage), pack_tokens=20, bf16=False))
crew.open(model, model, OptimizerConfig(learning_rate=1e-3), 1.0)
losses = [crew.learn(rows, Objective(cloning=True), 1e-3).sums["loss"] for _ in range(3)]
losses.append(crew.learn(rows[:1], Objective(cloning=True), 1e-3).sums["loss"])
found = {
    "losses": losses,
    "logprobs": crew.logprobs(rows),
    "reference": crew.logprobs(rows, reference=True),
    "sizes": {name: list(tensor.shape) for name, tensor in crew.weights().items()},
    "greedy": crew.continuations([rows[0].context], 1, 4, 0.0)[0].tokens,
}
crew.save(output + ".engine")
crew.restore(output + ".engine")
found["restored"] = crew.logprobs(rows)
crew.dismiss()
with open(output, "w") as file:
    json.dump(found, file)
"""


def run(tmp_path: Path, model: Path, *, ranks: int, stage: int) -> dict[str, object]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output = tmp_path / f"{ranks}.json"
    torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={free_port()}"]
    launcher = torchrun if ranks > 1 else []
    command = [sys.executable, *launcher, str(program), str(model), str(stage), str(output)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(output.read_text())
    return found


@pytest.mark.timeout(300)
def test_two_ranks_compute_what_one_does(tmp_path: Path, tiny_model: Path) -> None:
    one = run(tmp_path, tiny_model, ranks=1, stage=1)
    # Five rows in five packs, and then a single one: neither is a multiple of the ranks.
    two = run(tmp_path, tiny_model, ranks=2, stage=3)
    assert two["sizes"] == one["sizes"]
    assert two["greedy"] == one["greedy"]
    for name in ("losses", "logprobs", "reference", "restored"):
        flat = [pytest.approx(_flat(one[name]), rel=1e-4, abs=1e-5)]
        assert _flat(two[name]) == flat[0]


def _flat(values: object) -> list[float]:
    return [number for value in values for number in _flat(value)] if isinstance(values, list) else [values]  # type: ignore[list-item]
