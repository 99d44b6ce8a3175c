"""Configuration: typed blocks, read from a YAML file, then the environment, then overrides, the later one winning.

Every block forbids unknown keys; the error names the nearest known one and where the unknown key came from. A block
that is given in part keeps the rest of its field's default, so `server: {host: 0.0.0.0}` leaves the default port.
"""

import difflib
import os
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import pydantic
import yaml
from pydantic import Field

MIB = 1024 * 1024


class ConfigError(Exception):
    """The configuration or the machine does not allow a start; one line that says what to do."""


class Config(pydantic.BaseModel):
    """Base of every configuration block."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _keep_defaults_of_partial_blocks(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        filled = dict(values)
        for name, field in cls.model_fields.items():
            given = filled.get(name)
            if not isinstance(given, Mapping) or field.default_factory_takes_validated_data:
                continue
            default = field.get_default(call_default_factory=True)
            # Among several alternatives the given keys choose one, and the default's keys may not fit it.
            if isinstance(default, Config) and len(set(_models_in(field.annotation))) == 1:
                filled[name] = _merge(default.model_dump(exclude_unset=True), given)
        return filled


C = TypeVar("C", bound=pydantic.BaseModel)


class TlsConfig(Config):
    """A server's certificate; with `client_ca_file` set, clients must show one too."""

    cert_file: Path = Field(description="certificate chain, PEM")
    key_file: Path = Field(description="private key, PEM")
    client_ca_file: Path | None = Field(default=None, description="authority of client certificates; unset: none asked")


class ClientTlsConfig(Config):
    """How a client checks the server, and the certificate it shows."""

    ca_file: Path | None = Field(default=None, description="authority of the server; unset: the system's")
    cert_file: Path | None = Field(default=None, description="client certificate chain, PEM")
    key_file: Path | None = Field(default=None, description="client private key, PEM")
    server_name: str | None = Field(default=None, description="name to expect in the server's certificate")

    @pydantic.model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> "ClientTlsConfig":
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file must be set together")
        return self


class ServerConfig(Config):
    """One gRPC server."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(ge=0, le=65535, description="0: any free port")
    advertise: str | None = Field(default=None, description="host or host:port that others reach this server at")
    metrics_port: int | None = Field(default=None, ge=0, le=65535, description="Prometheus over HTTP; unset: off")
    health_port: int | None = Field(default=None, ge=0, le=65535, description="plaintext, health only; unset: off")
    max_message_bytes: int = Field(default=64 * MIB, ge=1024, description="bound on one message, both directions")
    drain_seconds: float = Field(default=30.0, ge=0, description="bound on finishing work after SIGTERM")
    keepalive_seconds: float = Field(default=30.0, gt=0, description="clients may ping twice as often")
    max_connection_age_seconds: float = Field(default=600.0, gt=0, description="then clients resolve and connect anew")
    max_connection_grace_seconds: float = Field(
        default=1800.0, gt=0, description="bound on calls of an aged connection"
    )
    reflection: bool = Field(default=True, description="serve gRPC reflection")
    tls: TlsConfig | None = Field(default=None, description="unset: plaintext")
    tokens_file: Path | None = Field(default=None, description="YAML: bearer token to its scopes; unset: no tokens")


class ClientConfig(Config):
    """How calls to other services are made."""

    tls: ClientTlsConfig | None = Field(default=None, description="unset: plaintext")
    token_file: Path | None = Field(default=None, description="file with the bearer token; unset: none is sent")
    max_message_bytes: int = Field(default=64 * MIB, ge=1024, description="bound on one message, both directions")
    keepalive_seconds: float = Field(default=30.0, gt=0, description="ping interval of idle and busy connections")


class TelemetryConfig(Config):
    """Logs and traces."""

    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: str | None = Field(default=None, description="OTLP over gRPC, http(s)://host:port; unset: no export")


class QueueConfig(Config):
    """The connection to NATS JetStream and the streams on it."""

    url: str = Field(default="nats://127.0.0.1:4222", description="one or more servers, separated by commas")
    credentials_file: Path | None = Field(default=None, description="NATS .creds file")
    tls: ClientTlsConfig | None = Field(default=None, description="unset: plaintext")
    replicas: int = Field(default=1, ge=1, le=5, description="copies of each stream; 3 in a cluster")
    connect_timeout: float = Field(default=10.0, gt=0, description="bound on the first connection")
    request_timeout: float = Field(default=5.0, gt=0, description="bound on one request to JetStream")
    publish_timeout: float = Field(default=60.0, gt=0, description="bound on one publish with all its retries")
    ack_wait_seconds: float = Field(default=30.0, gt=0, description="a silent consumer's message is redelivered")
    max_deliver: int = Field(default=3, ge=1, description="deliveries of a request before it is a dead letter")
    max_ack_pending: int = Field(default=4096, ge=1, description="messages in work per consumer")
    duplicate_window_seconds: float = Field(default=120.0, gt=0, description="publishes are deduplicated this long")
    requests_max_bytes: int = Field(default=64 * MIB, ge=1024, description="a full stream slows its publishers down")
    trajectories_max_bytes: int = Field(default=512 * MIB, ge=1024, description="as requests_max_bytes")
    dead_letters_max_bytes: int = Field(default=64 * MIB, ge=1024, description="as requests_max_bytes")


class PayloadConfig(Config):
    """Where payloads that do not fit a message are kept."""

    uri: str = Field(description="prefix: file:///directory, s3://bucket/prefix or jetstream://host:port/bucket/prefix")


def load(model: type[C], path: Path | None, *, env_prefix: str, overrides: Mapping[str, object] | None = None) -> C:
    """Reads `path`, then PREFIX__SECTION__KEY variables, then `section.key` overrides, and checks the whole."""
    values: dict[str, object] = _read_yaml(path) if path is not None else {}
    origins: dict[str, str] = {}
    for variable, text in sorted(os.environ.items()):
        prefix, _, key = variable.partition("__")
        if prefix == env_prefix and key:
            dotted = key.lower().replace("__", ".")
            _place(values, dotted, _parse(text), variable)
            origins[dotted] = variable
    for dotted, value in (overrides or {}).items():
        _place(values, dotted, _parse(value) if isinstance(value, str) else value, f"--set {dotted}")
        origins[dotted] = f"--set {dotted}"
    return validate(model, values, source=str(path) if path is not None else "configuration", origins=origins)


def validate(
    model: type[C], values: Mapping[str, object], *, source: str, origins: Mapping[str, str] | None = None
) -> C:
    """Builds the model; what is wrong becomes one ConfigError line that names `source`."""
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        problems = [_describe(model, detail, source, origins or {}) for detail in error.errors(include_url=False)]
        raise ConfigError("; ".join(problems)) from None


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name an existing one with --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping of section names, not {type(content).__name__}")
    return content


def _parse(text: str) -> object:
    """Text of a variable or option: collections and null as in YAML, scalars left to the field's type."""
    if text.strip().lower() in {"null", "~"}:
        return None
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _place(values: dict[str, object], dotted: str, value: object, origin: str) -> None:
    *sections, key = dotted.split(".")
    block = values
    for section in sections:
        inner = block.get(section)
        if inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            raise ConfigError(f"{origin}: {section} is a value, not a section")
        # Copied: the caller's mapping must not change.
        block[section] = inner = dict(inner)
        block = inner
    block[key] = value


def _merge(base: dict[str, object], over: Mapping[str, object]) -> dict[str, object]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged


def _describe(model: type[pydantic.BaseModel], detail: Any, source: str, origins: Mapping[str, str]) -> str:
    location: tuple[int | str, ...] = detail["loc"]
    dotted = ".".join(str(part) for part in location)
    origin = origins.get(dotted, source)
    where = f"{origin}: {dotted}" if dotted and origin != f"--set {dotted}" else origin
    if detail["type"] == "extra_forbidden":
        return f"{origin}: unknown key {dotted}; {_nearest(model, location)}"
    if detail["type"] == "missing":
        return f"{where} is required"
    message = str(detail["msg"]).removeprefix("Value error, ")
    given = detail["input"]
    shown = "" if isinstance(given, Mapping | list) or given is None else f" (got {given!r})"
    return f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _nearest(model: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> str:
    *sections, wrong = (str(part) for part in location)
    blocks = [model]
    path: list[str] = []
    for section in sections:
        deeper = [found for block in blocks for found in _models_of(block, section)]
        if deeper:
            blocks, path = deeper, [*path, section]
    here = sorted({name for block in blocks for name in block.model_fields})
    everywhere = dict(_walk(model, ()))
    close = difflib.get_close_matches(wrong, here, n=1, cutoff=0.6)
    if close:
        return f"the nearest known key is {'.'.join([*path, close[0]])}"
    elsewhere = difflib.get_close_matches(wrong, everywhere, n=1, cutoff=0.8)
    if elsewhere:
        return f"the nearest known key is {everywhere[elsewhere[0]]}"
    nearest = difflib.get_close_matches(wrong, here, n=1, cutoff=0.0)
    return f"the nearest known key is {'.'.join([*path, *nearest])}" if nearest else "this section takes no keys"


def _walk(model: type[pydantic.BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in model.model_fields:
        inner = _models_of(model, name)
        if inner and len(path) < 8:
            for block in inner:
                yield from _walk(block, (*path, name))
        yield name, ".".join([*path, name])


def _models_of(model: type[pydantic.BaseModel], field: str) -> list[type[pydantic.BaseModel]]:
    if field not in model.model_fields:
        return []
    return list(_models_in(model.model_fields[field].annotation))


def _models_in(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
