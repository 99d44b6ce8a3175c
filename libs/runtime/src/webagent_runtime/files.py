"""Where files are kept: a directory, S3-compatible storage, JetStream's object store, or whatever else fsspec reads."""

from typing import Any

import fsspec

fsspec.register_implementation("jetstream", "webagent_runtime.jetstream_files.JetStreamFiles")


def open_prefix(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI and the path there; ImportError or ValueError when there is none for it."""
    filesystem, path = fsspec.url_to_fs(uri)
    return filesystem, str(path)
