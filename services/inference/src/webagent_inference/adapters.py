"""Low-rank adapters: a policy version that says only how it differs from the base model.

An adapter is merged into the base once, when it is staged, and then served as any version is: loaded whole, proved on
its canary, exact in every backend, and at full speed. That costs writing the model once per version. (Engines can apply
adapters on the fly; vLLM keys its prefix cache by an adapter's name, so that a new one of an old name meets the old
one's cache.)
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from webagent.trajectory.v1 import policy_pb2

from webagent_inference import errors, modeldir
from webagent_inference.version import Shapes, StagedVersion, Staging

if TYPE_CHECKING:
    import torch

PREFIX = "base_model.model."
A, B = ".lora_A.weight", ".lora_B.weight"


def expected(manifest: policy_pb2.PolicyManifest, base: Shapes) -> Shapes:
    """The shapes that the tensors must have; UPDATE_FAILED unless they are an adapter of this base."""
    given = {entry.name: tuple(map(int, entry.shape)) for entry in manifest.tensors}
    modules = {_parts(name)[0] for name in given}
    if not given or 2 * len(modules) != len(given):
        raise errors.update_failed(
            f"the adapter has {len(given)} tensors for {len(modules)} matrices, not two for each"
        )
    for name, shape in given.items():
        module, partner = _parts(name)
        matrix = base.get(f"{module}.weight")
        if matrix is None or len(matrix) != 2:
            raise errors.update_failed(f"the adapter changes {module}, which is no matrix of the base model")
        if partner not in given:
            raise errors.update_failed(f"the adapter has {name} without {partner}")
        a, b = (shape, given[partner]) if name.endswith(A) else (given[partner], shape)
        if len(a) != 2 or len(b) != 2 or (b[0], a[1]) != matrix or a[0] != b[1] or a[0] < 1:
            raise errors.update_failed(f"the adapter of {module} has shapes {b} and {a}, the matrix {matrix}")
    return given


def merged(staged: StagedVersion, base: Path, staging: Staging) -> StagedVersion:
    """The version as a whole model, which is written beside other downloads."""
    version = staged.manifest.version
    place = staging.directory
    place.mkdir(parents=True, exist_ok=True)
    # The name is of its own: a download may have the version's.
    directory = Path(tempfile.mkdtemp(prefix=f"{version}-merged-", dir=place))
    try:
        _merge(staged, base, directory)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise errors.update_failed(f"the merged version {version} cannot be written: {error.strerror}") from error
    return replace(staged, directory=directory)


def _merge(staged: StagedVersion, base: Path, directory: Path) -> None:
    import safetensors.torch  # noqa: PLC0415 - heavy; only with adapters

    changes: dict[str, torch.Tensor] = {}
    for file in {entry.file for entry in staged.manifest.tensors}:
        changes |= safetensors.torch.load_file(staged.directory / file)
    by_module = {name: _parts(name)[0] for name in changes}
    a = {by_module[name]: tensor.float() for name, tensor in changes.items() if name.endswith(A)}
    b = {by_module[name]: tensor.float() for name, tensor in changes.items() if name.endswith(B)}
    # Whoever reads a model directory looks for the index first.
    index = base / "model.safetensors.index.json"
    if index.is_file():
        shutil.copy(index, directory / index.name)
    scale = staged.manifest.adapter.scale
    for file in modeldir.weight_files(base):
        tensors = safetensors.torch.load_file(base / file)
        changed = _apply(tensors, a, b, scale)
        if changed:
            safetensors.torch.save_file(tensors, directory / file, metadata={"format": "pt"})
        else:
            os.symlink((base / file).resolve(), directory / file)


def _apply(
    tensors: dict[str, "torch.Tensor"], a: Mapping[str, "torch.Tensor"], b: Mapping[str, "torch.Tensor"], scale: float
) -> bool:
    """Changes the matrices in place; whether any was."""
    modules = [module for module in a if f"{module}.weight" in tensors]
    for module in modules:
        weight = tensors[f"{module}.weight"]
        tensors[f"{module}.weight"] = (weight.float() + scale * (b[module] @ a[module])).to(weight.dtype)
    return bool(modules)


def _parts(name: str) -> tuple[str, str]:
    """The module that a tensor belongs to, and the name of the tensor that goes with it."""
    for own, other in ((A, B), (B, A)):
        if name.endswith(own):
            return name.removeprefix(PREFIX).removesuffix(own), name.removesuffix(own) + other
    raise errors.update_failed(f"{name} is no tensor of an adapter: its name ends with neither {A} nor {B}")
