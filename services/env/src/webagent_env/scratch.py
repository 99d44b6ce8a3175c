"""Files of a session: those it was given to upload, because pages read them late, and those that it downloaded.

They stay on disk until its context is closed.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from webagent_env.actions import File


class Scratch:
    """Directories that exist once something was kept in them. `downloads` is made by the browser."""

    def __init__(self, below: Path) -> None:
        self._below = below
        self._path: Path | None = None
        self.downloads = below / f"downloads-{secrets.token_hex(8)}"

    @property
    def used(self) -> bool:
        """Whether anything was kept."""
        return self._path is not None

    def keep(self, files: Iterable[File]) -> list[str]:
        """Writes files, each under its own name, and returns their paths."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="uploads-", dir=self._below))
        kept = []
        for file in files:
            path = Path(tempfile.mkdtemp(dir=self._path)) / file.name
            path.write_bytes(file.content)
            kept.append(str(path))
        return kept

    def remove(self) -> None:
        """Deletes everything."""
        shutil.rmtree(self.downloads, ignore_errors=True)
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None
