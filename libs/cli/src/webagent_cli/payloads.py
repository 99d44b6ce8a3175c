"""Payloads of a run, read from its directory."""

import hashlib
from pathlib import Path
from urllib.parse import unquote, urlparse

from webagent.trajectory.v1 import trajectory_pb2

from webagent_cli.runs import Run


def local_payload(run: Run, ref: trajectory_pb2.PayloadRef) -> bytes | None:
    """The bytes of a reference below the run's payloads; None if there are none or they are not the ones meant."""
    if not ref.uri:
        return None
    path = Path(unquote(urlparse(ref.uri).path))
    if not path.is_file():
        # The run may have been moved since: look for the same name below its own payloads.
        _, _, name = ref.uri.rpartition("/payloads/")
        path = run.payloads / name
    if not path.is_file():
        return None
    data = path.read_bytes()
    return data if hashlib.sha256(data).hexdigest() == ref.sha256 else None
