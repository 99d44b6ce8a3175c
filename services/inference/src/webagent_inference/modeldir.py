"""A model directory: what must be in it, and whether it is whole.

A directory that passes `check` has a config, a tokenizer with a chat template, and safetensors files as long as their
headers say, so that loading it does not fail halfway through.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_runtime.config import ConfigError

HINT = "run `python -m webagent_inference.prepare --out DIR` or point model.path at a complete model"
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class TensorSpan:
    """Where one tensor's raw bytes lie in a safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def tensor_spans(path: Path) -> list[TensorSpan]:
    """Reads a safetensors header; ValueError when the file is not one or is shorter or longer than it says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise ValueError(f"{path.name} is truncated: {size} bytes")
        (header_size,) = struct.unpack("<Q", prefix)
        if header_size > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(f"{path.name} is truncated or not a safetensors file")
        data = 8 + header_size
        try:
            header: dict[str, dict[str, object]] = json.loads(file.read(header_size))
            spans = [_span(name, entry, data) for name, entry in header.items() if name != "__metadata__"]
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path.name} has a broken header") from error
    expected = max((span.end for span in spans), default=data)
    if size != expected:
        raise ValueError(f"{path.name} is truncated: {size} bytes instead of {expected}")
    return spans


def _span(name: str, entry: dict[str, object], data: int) -> TensorSpan:
    offsets, shape = entry["data_offsets"], entry["shape"]
    if not isinstance(offsets, list) or not isinstance(shape, list):
        raise TypeError(name)
    start, end = map(int, offsets)
    if not 0 <= start <= end:
        raise ValueError(name)
    return TensorSpan(name, str(entry["dtype"]), tuple(map(int, shape)), data + start, data + end)


def check(directory: Path) -> None:
    """ConfigError, in one line, unless the directory holds a complete model."""
    check_tokenizer(directory)
    try:
        names = weight_files(directory)
        for name in names:
            tensor_spans(directory / name)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise ConfigError(f"model directory {directory} is incomplete, {missing} is missing: {HINT}") from error
    except ValueError as error:
        raise ConfigError(f"model directory {directory} is damaged, {error}: {HINT}") from error
    if not names:
        raise ConfigError(f"model directory {directory} is incomplete, no *.safetensors file: {HINT}")


def check_tokenizer(directory: Path) -> None:
    """ConfigError, in one line, unless the directory holds a config and a tokenizer."""
    if not directory.is_dir():
        raise ConfigError(f"model directory {directory} does not exist: {HINT}")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        if not (directory / name).is_file():
            raise ConfigError(f"model directory {directory} is incomplete, {name} is missing: {HINT}")


@dataclass(frozen=True)
class Shape:
    """What a model's config says about its size; 0 where it says nothing."""

    longest_context: int
    cached_values_per_token: int
    tied: bool

    @classmethod
    def read(cls, directory: Path) -> "Shape":
        """Reads config.json."""
        whole: dict[str, Any] = json.loads((directory / "config.json").read_text())
        config: dict[str, Any] = whole.get("text_config", whole)
        heads = config.get("num_attention_heads", 0)
        width = config.get("head_dim") or (config.get("hidden_size", 0) // heads if heads else 0)
        cached = 2 * config.get("num_hidden_layers", 0) * config.get("num_key_value_heads", heads) * width
        return cls(
            longest_context=config.get("max_position_embeddings", 0),
            cached_values_per_token=cached,
            tied=bool(whole.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        )


def weight_files(directory: Path) -> list[str]:
    """Names of the safetensors files: those that the index lists, or every safetensors file where there is no index."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
        return sorted(set(weight_map.values()))
    return sorted(path.name for path in directory.glob("*.safetensors"))
