"""The DeepSpeed engine of one rank: exact accumulation, exact resumption, weights as published."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from google.protobuf import json_format
from safetensors import safe_open
from torch import nn
from transformers import AutoModelForCausalLM
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.files import open_prefix
from webagent_runtime.testing import nats_server
from webagent_trainer.batches import LearningRow
from webagent_trainer.chance import seeded
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.crew import Crew
from webagent_trainer.errors import RunFailedError
from webagent_trainer.learner import Objective
from webagent_trainer.publish import PolicyDirectory
from webagent_trainer.testing import VOCABULARY

CLONING = Objective(cloning=True)
OPTIMIZER = OptimizerConfig(learning_rate=1e-3, max_gradient_norm=2.0)


def make_rows(count: int = 8, seed: int = 0) -> list[LearningRow]:
    chance = seeded("rows", seed)
    tokens = [tuple(chance.randrange(3, VOCABULARY) for _ in range(16)) for _ in range(count)]
    return [LearningRow(row[:12], row[12:], weight=1 / (4 * count)) for row in tokens]


def begin(crew: Crew, model: Path, *, pack_tokens: int = 64, reference: bool = False, **config: object) -> None:
    settings: dict[str, object] = {"bf16": True, **config}
    crew.begin(DeepSpeedConfig(threads=1, pack_tokens=pack_tokens, **settings))  # type: ignore[arg-type]
    crew.open(str(model), str(model) if reference else None, OPTIMIZER, 1.0)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_step_is_that_of_adamw_on_the_clipped_sum_over_all_rows(crew: Crew, tiny_model: Path, stage: int) -> None:
    begin(crew, tiny_model, bf16=False, zero_stage=stage, pack_tokens=20)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)
    rows = make_rows()
    for _ in range(3):
        ids = torch.tensor([[*row.context, *row.reply] for row in rows])
        scores = model(ids).logits[:, 11:-1].log_softmax(-1).gather(2, ids[:, 12:, None])
        loss = -(scores.sum() / 32)
        adamw.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        adamw.step()
        report = crew.learn(rows, CLONING, 1e-3)
        assert report.sums["loss"] == pytest.approx(loss.item(), rel=1e-4)
        assert report.gradient_norm == pytest.approx(norm.item(), rel=1e-4)
        assert norm > 2.0


@pytest.mark.parametrize("stage", [1, 3])
def test_a_gradient_that_is_not_finite_ends_the_run(crew: Crew, tiny_model: Path, stage: int) -> None:
    begin(crew, tiny_model, bf16=False, zero_stage=stage)
    rows = [replace(row, weight=math.nan) for row in make_rows()]
    with pytest.raises(RunFailedError, match="DIVERGED"):
        crew.learn(rows, CLONING, 1e-3)


def test_small_steps_of_bfloat16_weights_are_not_lost(crew: Crew, tiny_model: Path) -> None:
    begin(crew, tiny_model)
    before = crew.logprobs(make_rows())
    for _ in range(60):
        crew.learn(make_rows(), CLONING, 2e-5)
    gain = sum(map(sum, crew.logprobs(make_rows()))) - sum(map(sum, before))
    # One step of 2e-5 is below bfloat16's resolution of most weights: only float32 masters add them up.
    assert gain > 0.1


@pytest.mark.parametrize(
    ("bf16", "stage"),
    [(True, 3), (False, 1), *(pytest.param(True, stage, marks=pytest.mark.slow) for stage in (1, 2))],
)
def test_a_restored_engine_goes_on_exactly(
    crew: Crew, tiny_model: Path, tmp_path: Path, bf16: bool, stage: int
) -> None:
    begin(crew, tiny_model, bf16=bf16, zero_stage=stage)
    crew.learn(make_rows(), CLONING, 1e-2)
    crew.save(str(tmp_path / "engine"))
    wanted = [crew.learn(make_rows(seed=n), CLONING, 1e-2).sums["loss"] for n in range(3)]
    begin(crew, tiny_model, bf16=bf16, zero_stage=stage)
    crew.restore(str(tmp_path / "engine"))
    assert [crew.learn(make_rows(seed=n), CLONING, 1e-2).sums["loss"] for n in range(3)] == wanted


def test_the_reference_stays_what_the_policy_was(crew: Crew, tiny_model: Path) -> None:
    begin(crew, tiny_model, reference=True)
    rows = make_rows()
    before = crew.logprobs(rows)
    assert crew.logprobs(rows, reference=True) == before
    crew.learn(rows, CLONING, 1e-2)
    assert crew.logprobs(rows, reference=True) == before
    assert crew.logprobs(rows) != before


def test_a_canary_is_the_same_with_and_without_checkpointing(crew: Crew, tiny_model: Path) -> None:
    prompts = [row.context for row in make_rows()]
    found = []
    for checkpointing in (False, True):
        begin(crew, tiny_model, bf16=False, gradient_checkpointing=checkpointing)
        found.append(crew.continuations(prompts, 2, 8, 0.0))
        crew.learn(make_rows(), CLONING, 1e-2)
        found.append(crew.continuations(prompts, 2, 8, 0.0))
    assert found[2:] == found[:2]
    assert all(len(canary.tokens) > 1 for canary in found[0])


@pytest.mark.parametrize("bf16", [True, False])
def test_a_published_version_is_the_policy_and_its_manifest_is_true(
    crew: Crew, tiny_model: Path, tmp_path: Path, bf16: bool
) -> None:
    begin(crew, tiny_model, bf16=bf16)
    crew.learn(make_rows(), CLONING, 1e-2)
    prompts = [row.context for row in make_rows()]
    directory = PolicyDirectory(tmp_path, base_model=tiny_model, run_id="run", tolerance=0.1)
    proofs = crew.continuations(prompts, 2, 8, 0.3)
    entry = directory.write(crew.weights(), proofs, version=4, parent=3, step=9, phase="rl")
    text = (tmp_path / "4" / "manifest.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == entry.manifest_digest
    manifest = json_format.Parse(text, policy_pb2.PolicyManifest())
    with (
        safe_open(tmp_path / "4" / "model.safetensors", "pt") as written,
        safe_open(tiny_model / "model.safetensors", "pt") as base,
    ):
        assert {tensor.name for tensor in manifest.tensors} == set(written.keys()) == set(base.keys())
        for tensor in manifest.tensors:
            values = written.get_tensor(tensor.name)
            assert (tensor.dtype, list(tensor.shape)) == ("BF16" if bf16 else "F32", list(values.shape))
            assert tensor.sha256 == hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "4", dtype=torch.bfloat16 if bf16 else torch.float32)
    assert 1 <= len(manifest.canaries) <= 2
    for canary in manifest.canaries:
        ids = [*canary.prompt_token_ids, *canary.token_ids]
        scores = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)[len(canary.prompt_token_ids) - 1 : -1]
        assert scores.argmax(-1).tolist() == list(canary.token_ids)
        found = scores.gather(1, torch.tensor(list(canary.token_ids))[:, None])[:, 0]
        assert found.tolist() == pytest.approx(list(canary.logprobs), abs=canary.tolerance)


def test_only_the_newest_versions_and_those_asked_for_are_kept(tiny_model: Path, tmp_path: Path) -> None:
    directory = PolicyDirectory(tmp_path, base_model=tiny_model, run_id="run", tolerance=0.1)
    for version in range(1, 7):
        directory.write({"w": torch.zeros(2, dtype=torch.bfloat16)}, [], version=version, parent=0, step=1, phase="rl")
    directory.keep(2, {3})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "5", "6"]


def test_versions_are_announced_from_where_they_were_copied_to(tiny_model: Path, tmp_path: Path) -> None:
    with nats_server() as nats:
        uri = f"jetstream://127.0.0.1:{nats.port}/policies"
        directory = PolicyDirectory(tmp_path, base_model=tiny_model, run_id="run", tolerance=0.1, uri=uri)
        weights = {"w": torch.zeros(300_000, dtype=torch.bfloat16)}
        entries = [directory.write(weights, [], version=n, parent=0, step=1, phase="rl") for n in (1, 2, 3)]
        directory.keep(2, set())
        files, prefix = open_prefix(uri)
        assert [entry.uri for entry in entries] == [f"{uri}/run/{n}" for n in (1, 2, 3)]
        assert {each["name"].split("/")[2] for each in files.ls(f"{prefix}/run", detail=True)} == {"2", "3"}
        for file in (tmp_path / "3").iterdir():
            assert files.cat_file(f"{prefix}/run/3/{file.name}") == file.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", [1, 3])
def test_saving_and_publishing_fifty_times_changes_nothing(
    crew: Crew, tiny_model: Path, tmp_path: Path, stage: int
) -> None:
    begin(crew, tiny_model, zero_stage=stage)
    expected = [crew.learn(make_rows(seed=n), CLONING, 1e-3).sums["loss"] for n in range(50)]
    begin(crew, tiny_model, zero_stage=stage)
    for number, loss in enumerate(expected):
        assert crew.learn(make_rows(seed=number), CLONING, 1e-3).sums["loss"] == loss
        crew.save(str(tmp_path / "engine"))
        tensors = crew.weights()
        assert all(tensor.numel() for tensor in tensors.values())
