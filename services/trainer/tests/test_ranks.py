"""Two and three ranks with gloo compute what one rank computes, whatever ZeRO shards and however unequal the rows."""

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
sampled = [
    LearningRow(
        tuple(range(3, 9 + 3 * n)), tuple(range(5, 6 + n)), weight=0.1 + 0.05 * n, advantage=1.0 - 0.6 * n, turns=n,
        sampler=(-2.0,) * (1 + n), stale=(n % 2 == 1,) * (1 + n), old=(-2.5,) * (1 + n), reference=(-2.2,) * (1 + n),
    )
    for n in range(4)
]
objective = Objective(kl_coefficient=0.01)
reports = [crew.learn(sampled[:count], objective, 1e-3) for count in (4, 2, 1)]
losses += [report.sums["loss"] for report in reports]
losses += [report.gradient_norm for report in reports]
losses += [report.sums["pull_success"] for report in reports]
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
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(output.read_text())
    return found


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, object]:
    return run(tmp_path_factory.mktemp("one"), tiny_model, ranks=1, stage=1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ranks", "stage"),
    [(2, 3), *(pytest.param(*shape, marks=pytest.mark.slow) for shape in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3)))],
)
def test_more_ranks_compute_what_one_does(
    tmp_path: Path, tiny_model: Path, one: dict[str, object], ranks: int, stage: int
) -> None:
    # Five rows in five packs, and then a single one: neither is a multiple of the ranks.
    more = run(tmp_path, tiny_model, ranks=ranks, stage=stage)
    assert more["sizes"] == one["sizes"]
    assert more["greedy"] == one["greedy"]
    for name in ("losses", "logprobs", "reference", "restored"):
        assert _flat(more[name]) == pytest.approx(_flat(one[name]), rel=1e-4, abs=1e-5)


def _flat(values: object) -> list[float]:
    return [number for value in values for number in _flat(value)] if isinstance(values, list) else [values]  # type: ignore[list-item]
