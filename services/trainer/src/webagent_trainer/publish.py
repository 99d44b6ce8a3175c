"""A policy version: safetensors, the base model's small files, and the manifest as the last file.

A directory or prefix without manifest.json is no version. What follows, the entry in the bucket, is the caller's; only
after it does any replica look there. The trainer itself reads the directory; replicas may read a copy of it elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
import torch
from fsspec.implementations.local import LocalFileSystem
from google.protobuf import json_format
from safetensors.torch import save_file
from torch import Tensor
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.config import ConfigError
from webagent_runtime.files import open_prefix

from webagent_trainer.canary import Continuation

log = structlog.get_logger()

MANIFEST = "manifest.json"
_WEIGHTS = "model.safetensors"
_DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32"}
_HASHING_THREADS = 4


class PolicyDirectory:
    """The versions of one run, each in a directory named by its number; with `uri`, copied to <uri>/<run>/<number>."""

    def __init__(self, root: Path, *, base_model: Path, run_id: str, tolerance: float, uri: str | None = None) -> None:
        self._root = root
        self._copies = None if uri is None else _Copies(uri, run_id)
        self._base_model = base_model
        self._run_id = run_id
        self._tolerance = tolerance

    def path(self, version: int) -> Path:
        """Where a version lies."""
        return self._root / str(version)

    def write(
        self,
        tensors: Mapping[str, Tensor],
        canaries: Sequence[Continuation],
        *,
        version: int,
        parent: int,
        step: int,
        phase: str,
    ) -> policy_pb2.PolicyVersion:
        """Writes a version and returns the entry that announces it."""
        directory = self.path(version)
        # Left by a trainer that died before it could announce the version; nobody has read it.
        shutil.rmtree(directory, ignore_errors=True)
        with ThreadPoolExecutor(_HASHING_THREADS) as pool:
            entries = pool.map(_describe, tensors.items())
            write_model(tensors, base_model=self._base_model, directory=directory)
            described = list(entries)
        manifest = policy_pb2.PolicyManifest(
            version=version,
            parent=parent,
            step=step,
            run_id=self._run_id,
            phase=phase,
            tensors=described,
            canaries=[
                policy_pb2.Canary(
                    prompt_token_ids=canary.prompt,
                    token_ids=canary.tokens,
                    logprobs=canary.logprobs,
                    tolerance=self._tolerance,
                )
                for canary in canaries
            ],
        )
        text = json_format.MessageToJson(manifest, preserving_proto_field_name=True, indent=None).encode()
        partial = directory / f".{MANIFEST}"
        partial.write_bytes(text)
        partial.replace(directory / MANIFEST)
        announced = policy_pb2.PolicyVersion(
            version=version,
            uri=directory.resolve().as_uri() if self._copies is None else self._copies.put(directory),
            manifest_digest=hashlib.sha256(text).hexdigest(),
            run_id=self._run_id,
        )
        announced.created_at.GetCurrentTime()
        return announced

    def keep(self, newest: int, also: Collection[int]) -> None:
        """Removes all versions but the `newest` ones and those named."""
        versions = sorted(int(entry.name) for entry in self._root.iterdir() if entry.name.isdigit())
        for version in versions[:-newest]:
            if version not in also:
                if self._copies is not None:
                    self._copies.remove(self.path(version))
                shutil.rmtree(self.path(version))


class _Copies:
    """Copies of versions below a prefix, for replicas that share no directory with the trainer."""

    def __init__(self, uri: str, run_id: str) -> None:
        try:
            self._files, prefix = open_prefix(uri)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"publish.uri {uri}: {' '.join(str(error).split())}") from None
        self._root = f"{prefix.rstrip('/')}/{run_id}"

    def put(self, directory: Path) -> str:
        """Copies a version, its manifest last; the URI of the copy."""
        target = f"{self._root}/{directory.name}"
        if isinstance(self._files, LocalFileSystem):  # object stores have no directories
            self._files.makedirs(target, exist_ok=True)
        for file in sorted(directory.iterdir(), key=lambda each: each.name == MANIFEST):
            self._files.put_file(str(file), f"{target}/{file.name}")
        return str(self._files.unstrip_protocol(target))

    def remove(self, directory: Path) -> None:
        """Removes the copy of a version, its manifest first. One that stays for a fault is only in the way."""
        try:
            for file in sorted(directory.iterdir(), key=lambda each: each.name != MANIFEST):
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(f"{self._root}/{directory.name}/{file.name}")
        except OSError as error:
            log.warning("old_version_stays", version=directory.name, error=str(error))


def write_model(tensors: Mapping[str, Tensor], *, base_model: Path, directory: Path) -> None:
    """Makes `directory` a model with these weights and the base model's other files."""
    directory.mkdir(parents=True)
    for file in base_model.iterdir():
        if _is_small_file(file):
            shutil.copyfile(file, directory / file.name)
    save_file(dict(tensors), directory / _WEIGHTS, metadata={"format": "pt"})


def _describe(tensor: tuple[str, Tensor]) -> policy_pb2.TensorEntry:
    name, values = tensor
    # numpy has no bfloat16; a view as bytes is the same memory.
    raw = values.contiguous().view(torch.uint8).numpy().reshape(-1).data
    return policy_pb2.TensorEntry(
        name=name,
        file=_WEIGHTS,
        dtype=_DTYPES[values.dtype],
        shape=list(values.shape),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def _is_small_file(path: Path) -> bool:
    """Configuration, tokenizer, template: what makes a directory a model beside its weights."""
    if path.name == MANIFEST or path.name.endswith(".index.json"):
        return False
    return path.is_file() and path.suffix in {".json", ".jinja", ".txt", ".model"}
