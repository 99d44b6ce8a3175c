"""Files that hold secrets and may be renewed while a service runs: certificates, keys, tokens.

Whoever uses one asks before each use whether it has changed, and keeps what it has while the new one cannot be used.
"""

from collections.abc import Sequence
from pathlib import Path

import structlog

from webagent_runtime.config import ConfigError

log = structlog.get_logger()


class Watched:
    """Files, and whether they have changed since they were last asked about. Mounted Secrets change by a link."""

    def __init__(self, files: Sequence[Path | None]) -> None:
        self._files = [file for file in files if file is not None]
        self._seen = self._look()

    def changed(self) -> bool:
        """True once for each change."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(file) for file in self._files]


class Token:
    """A token or key in a file of its own; ConfigError unless it can be read at the beginning."""

    def __init__(self, field: str, path: Path) -> None:
        self._field = field
        self._path = path
        self._watched = Watched([path])
        self._value = self._read()

    def value(self) -> str:
        """What the file holds now, or held when it could last be read; without the white space around it."""
        if self._watched.changed():
            try:
                self._value = self._read()
            except ConfigError as error:
                log.warning("token_not_renewed", error=str(error))
        return self._value

    def _read(self) -> str:
        try:
            return read(self._field, self._path).decode("ascii").strip()
        except UnicodeDecodeError:
            raise ConfigError(f"{self._field} {self._path}: a token has none but ASCII characters") from None


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read(field: str, path: Path) -> bytes:
    """A file that the configuration names; ConfigError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{field} {path}: {error.strerror}") from None
