"""Model directories that are missing, cut off or damaged, and the one that is made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from webagent_inference import modeldir
from webagent_inference.prepare import prepare
from webagent_runtime.config import ConfigError


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, directory)
    (directory / "model.safetensors").symlink_to(model / "model.safetensors")
    return directory


def problem(directory: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        modeldir.check(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_prepared_model_is_whole_untied_and_not_made_twice(model: Path) -> None:
    modeldir.check(model)
    names = {span.name for span in modeldir.tensor_spans(model / "model.safetensors")}
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= names
    assert prepare(model) is False


def test_a_missing_directory_says_how_to_make_one(tmp_path: Path) -> None:
    assert "webagent_inference.prepare" in problem(tmp_path / "none")


def test_a_missing_file_is_named(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in problem(copied)


def test_absent_weights_are_noticed(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    assert "no *.safetensors" in problem(copied)


@pytest.mark.parametrize("kept", [4, 5000, 1 << 20])
def test_truncated_weights_are_noticed_before_they_are_loaded(copied: Path, model: Path, kept: int) -> None:
    (copied / "model.safetensors").unlink()
    with (model / "model.safetensors").open("rb") as whole:
        (copied / "model.safetensors").write_bytes(whole.read(kept))
    assert "truncated" in problem(copied)


def test_an_incomplete_directory_is_not_overwritten(copied: Path) -> None:
    (copied / "config.json").unlink()
    with pytest.raises(ConfigError, match="delete it"):
        prepare(copied)
