"""Bearer tokens and their scopes, from a file that may change. Comparison takes the same time whatever is presented."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import structlog
import yaml

from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError
from webagent_runtime.secret_files import Watched

log = structlog.get_logger()

_SCHEME = "Bearer "


class Tokens:
    """Known tokens, kept as digests, each with the scopes it grants: those of the file as it could last be read."""

    def __init__(self, path: Path) -> None:
        """ConfigError unless the file is a YAML mapping of token to list of scopes."""
        self._path = path
        self._watched = Watched([path])
        self._scopes = _read(path)

    def check(self, metadata: Iterable[tuple[str, Any]] | None, scope: str | None) -> None:
        """Raises unless the metadata carries a known token that grants `scope`; None: any known token will do."""
        header = next((value for key, value in metadata or () if key == "authorization"), "")
        if not isinstance(header, str) or not header.startswith(_SCHEME):
            message = "this server needs a bearer token in the metadata 'authorization'"
            raise ServiceError(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED", message)
        self._renew()
        presented = _digest(header.removeprefix(_SCHEME))
        granted: frozenset[str] | None = None
        for known, scopes in self._scopes.items():
            if hmac.compare_digest(presented, known):
                granted = scopes
        if granted is None:
            raise ServiceError(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN", "the bearer token is not known here")
        if scope is not None and scope not in granted:
            message = f"the bearer token lacks the scope {scope!r}"
            raise ServiceError(grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING", message)

    def _renew(self) -> None:
        if not self._watched.changed():
            return
        try:
            self._scopes = _read(self._path)
        except ConfigError as error:
            log.warning("tokens_not_renewed", error=str(error))
        else:
            log.info("tokens_renewed", tokens=len(self._scopes))


def _read(path: Path) -> dict[bytes, frozenset[str]]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"tokens_file {path}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not all(_is_entry(token, scopes) for token, scopes in content.items()):
        raise ConfigError(f"tokens_file {path}: must map each token to its list of scopes")
    return {_digest(token): frozenset(scopes) for token, scopes in content.items()}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _is_entry(token: object, scopes: object) -> bool:
    return isinstance(token, str) and isinstance(scopes, list) and all(isinstance(scope, str) for scope in scopes)
