"""The files of a policy version: brought here, and checked against their manifest.

A download is whole or not there: it is made beside its place and moved there at its end, and one whose files turn out
to be wrong is deleted, so that the next try downloads it again. Replicas of one machine may share a staging directory;
each takes a part of it for its own.

A version that `verify` passes is whole: every tensor of the base model is there in its shape, nothing else is, and the
raw bytes of each are those that the trainer hashed. Tensors are hashed in parallel from the mapped file, so that each
byte is read once and the load after it finds the pages in memory.
"""

import fcntl
import hashlib
import itertools
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

from google.protobuf import json_format
from webagent.trajectory.v1 import policy_pb2
from webagent_runtime.files import open_prefix

from webagent_inference import errors, modeldir
from webagent_inference.modeldir import TensorSpan

MANIFEST = "manifest.json"

# Name and shape of every tensor.
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class StagedVersion:
    """A version whose files are on this machine."""

    directory: Path
    manifest: policy_pb2.PolicyManifest


class Staging:
    """This process's own part of the staging directory, the same again after a restart."""

    def __init__(self, root: Path) -> None:
        # Absolute, as everything is that names a directory below it.
        self._root = self._directory = root.absolute()
        self._lock: IO[bytes] | None = None

    @property
    def directory(self) -> Path:
        """Taken when it is first needed, and until the process ends."""
        if self._lock is None:
            self._root.mkdir(parents=True, exist_ok=True)
            for number in itertools.count():
                lock = (self._root / f"{number}.lock").open("ab")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    lock.close()
                    continue
                self._lock, self._directory = lock, self._root / str(number)
                break
        return self._directory

    def forget(self, keep: Sequence[Path]) -> None:
        """Deletes downloads but those named."""
        if self._lock is None:
            return
        for directory in self._directory.iterdir() if self._directory.is_dir() else ():
            if directory not in keep:
                shutil.rmtree(directory, ignore_errors=True)


def base_shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the base model."""
    return {
        span.name: span.shape
        for name in modeldir.weight_files(directory)
        for span in modeldir.tensor_spans(directory / name)
    }


def stage(uri: str, version: int, digest: str, staging: Staging) -> StagedVersion:
    """Brings a version's files here: a local directory is used in place, anything else is downloaded once."""
    local = _local(uri)
    if local is not None:
        return StagedVersion(local, _manifest(_read(local / MANIFEST, uri), version, digest, uri))
    try:
        filesystem, prefix = open_prefix(uri)
    except (ImportError, ValueError) as error:
        raise errors.weights_not_found(uri, str(error)) from error
    manifest = _manifest(_fetch(filesystem, f"{prefix}/{MANIFEST}", uri), version, digest, uri)
    try:
        directory = staging.directory / f"{version}-{digest[:16]}"
        if not directory.is_dir():
            _download(filesystem, prefix, _files(manifest), directory, uri)
    except OSError as error:
        raise errors.update_failed(f"{uri} cannot be brought here: {error.strerror or error}") from error
    return StagedVersion(directory, manifest)


def verify(staged: StagedVersion, shapes: Shapes, threads: int) -> None:
    """ServiceError unless the files are those of the manifest and fit the base model."""
    entries = {entry.name: entry for entry in staged.manifest.tensors}
    missing, extra = shapes.keys() - entries.keys(), entries.keys() - shapes.keys()
    if missing or extra:
        what = f"lacks {min(missing)}" if missing else f"has {min(extra)}, which the base model lacks"
        raise errors.update_failed(f"version {staged.manifest.version} {what}")
    with ThreadPoolExecutor(threads) as pool:
        for file in _files(staged.manifest):
            wanted = [entry for entry in staged.manifest.tensors if entry.file == file]
            _verify_file(staged.directory / file, wanted, shapes, pool)


def _verify_file(
    path: Path,
    wanted: Sequence[policy_pb2.TensorEntry],
    shapes: Shapes,
    pool: ThreadPoolExecutor,
) -> None:
    try:
        spans = {span.name: span for span in modeldir.tensor_spans(path)}
    except FileNotFoundError as error:
        raise errors.weights_not_found(str(path.parent), f"{path.name} is missing") from error
    except ValueError as error:
        raise errors.checksum_mismatch(str(error)) from error
    for entry in wanted:
        span = spans.get(entry.name)
        if span is None or (span.dtype, span.shape) != (entry.dtype, tuple(entry.shape)):
            raise errors.checksum_mismatch(f"{path.name}: {entry.name} is not as the manifest says")
        if span.shape != shapes[entry.name]:
            raise errors.update_failed(f"{entry.name} has shape {span.shape}, the base model {shapes[entry.name]}")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            # Largest first, so that no thread is left with a long one at the end.
            ordered = sorted(wanted, key=lambda entry: spans[entry.name].start - spans[entry.name].end)
            digests = list(pool.map(lambda entry: _sha256(view, spans[entry.name]), ordered))
        finally:
            view.release()
    for entry, digest in zip(ordered, digests, strict=True):
        if digest != entry.sha256:
            raise errors.checksum_mismatch(f"{path.name}: the bytes of {entry.name} have another sha256")


def _sha256(view: memoryview, span: TensorSpan) -> str:
    with view[span.start : span.end] as tensor:
        return hashlib.sha256(tensor).hexdigest()


def _files(manifest: policy_pb2.PolicyManifest) -> list[str]:
    """The version's weight files; only plain names, so that nothing outside its directory is read."""
    names = sorted({entry.file for entry in manifest.tensors})
    for name in names:
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise errors.update_failed(f"{name!r} is not the name of a safetensors file")
    return names


def _manifest(content: bytes, version: int, digest: str, uri: str) -> policy_pb2.PolicyManifest:
    if hashlib.sha256(content).hexdigest() != digest:
        raise errors.checksum_mismatch(f"{uri}/{MANIFEST} does not have the digest {digest}")
    try:
        manifest = json_format.Parse(content, policy_pb2.PolicyManifest(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise errors.update_failed(f"{uri}/{MANIFEST} is not a manifest: {error}") from error
    if manifest.version != version:
        raise errors.update_failed(f"{uri}/{MANIFEST} is that of version {manifest.version}, not {version}")
    return manifest


def _local(uri: str) -> Path | None:
    parsed = urlparse(uri)
    if parsed.scheme in {"file", "local"}:
        return Path(unquote(parsed.netloc + parsed.path))
    return None if "://" in uri else Path(uri)


def _read(path: Path, uri: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.weights_not_found(uri, f"{path.name}: {error.strerror}") from error


def _fetch(filesystem: Any, path: str, uri: str) -> bytes:
    try:
        content: bytes = filesystem.cat_file(path)
    except FileNotFoundError as error:
        raise errors.weights_not_found(uri, f"{path} is missing") from error
    return content


def _download(filesystem: Any, prefix: str, files: Sequence[str], directory: Path, uri: str) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory.parent))
    try:
        needed = sum(filesystem.size(f"{prefix}/{file}") or 0 for file in files)
        free = shutil.disk_usage(partial).free
        if needed > free:
            raise errors.update_failed(f"{uri} has {needed} bytes, {free} are free where it would be staged")
        for file in files:
            filesystem.get_file(f"{prefix}/{file}", str(partial / file))
        os.replace(partial, directory)
    except FileNotFoundError as error:
        raise errors.weights_not_found(uri, str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
