"""Payloads by reference: bytes under one fsspec prefix, handed around as URI, size and sha256.

A reference that is handed out points at the whole payload: local files appear under their name in one step, object
stores write atomically. `get` accepts only references below its own prefix, since they come from messages.
"""

import asyncio
import hashlib
import os
import posixpath
import secrets
from pathlib import Path

import grpc
from fsspec.implementations.local import LocalFileSystem
from webagent.trajectory.v1 import trajectory_pb2

from webagent_runtime.config import ConfigError, PayloadConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.files import open_prefix

_RETRY_SECONDS = 2.0


class PayloadStore:
    """Puts and gets payloads below the configured prefix."""

    def __init__(self, config: PayloadConfig) -> None:
        try:
            self._filesystem, root = open_prefix(config.uri)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"payloads.uri {config.uri}: {' '.join(str(error).split())}") from None
        self._root = root.rstrip("/")

    async def put(self, name: str, data: bytes, media_type: str) -> trajectory_pb2.PayloadRef:
        """Stores `data` under `name`, which may contain slashes; the same name again replaces it."""
        path = self._path(name)
        await asyncio.to_thread(self._write, path, data)
        return trajectory_pb2.PayloadRef(
            uri=self._filesystem.unstrip_protocol(path),
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            media_type=media_type,
        )

    async def get(self, ref: trajectory_pb2.PayloadRef) -> bytes:
        """Reads a payload and checks it against its reference. A store that cannot be read is UNAVAILABLE."""
        path = self._filesystem._strip_protocol(ref.uri)
        if not path.startswith(f"{self._root}/") or ".." in path.split("/"):
            message = f"{ref.uri} is not below this store's prefix {self._root}"
            raise ServiceError(grpc.StatusCode.PERMISSION_DENIED, "PAYLOAD_FOREIGN", message)
        try:
            data: bytes = await asyncio.to_thread(self._filesystem.cat_file, path)
        except FileNotFoundError:
            raise ServiceError(grpc.StatusCode.NOT_FOUND, "PAYLOAD_NOT_FOUND", f"{ref.uri} does not exist") from None
        except Exception as error:
            # Each kind of store has errors of its own.
            message = f"{ref.uri} cannot be read: {type(error).__name__}: {error}"
            raise ServiceError(
                grpc.StatusCode.UNAVAILABLE, "PAYLOAD_UNAVAILABLE", message, retry_after=_RETRY_SECONDS
            ) from error
        digest = hashlib.sha256(data).hexdigest()
        if digest != ref.sha256 or len(data) != ref.size_bytes:
            message = (
                f"{ref.uri} has {len(data)} bytes and sha256 {digest}, not {ref.size_bytes} bytes and {ref.sha256}"
            )
            raise ServiceError(grpc.StatusCode.DATA_LOSS, "PAYLOAD_CORRUPT", message)
        return data

    def _path(self, name: str) -> str:
        if not name or name.startswith(("/", "..")) or posixpath.normpath(name) != name:
            message = f"{name!r} is not a relative path without dots"
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAYLOAD_NAME", message)
        return f"{self._root}/{name}"

    def _write(self, path: str, data: bytes) -> None:
        if not isinstance(self._filesystem, LocalFileSystem):
            self._filesystem.pipe_file(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        partial.write_bytes(data)
        os.replace(partial, target)
