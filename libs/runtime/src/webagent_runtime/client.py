"""The one way to call another service: a deadline on every call, keepalive, round robin, bounded messages.

Calls that the contracts declare idempotent are retried by gRPC itself while the server is UNAVAILABLE, within their
deadline; all others are left to the caller. The current span and the bearer token travel in the metadata.
"""

import asyncio
import hashlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from opentelemetry import trace

from webagent_runtime.config import ClientConfig, ClientTlsConfig, ConfigError
from webagent_runtime.errors import ServiceError
from webagent_runtime.server import METADATA_BYTES
from webagent_runtime.telemetry import trace_headers, tracer

IDEMPOTENT: dict[str, tuple[str, ...]] = {
    "grpc.health.v1.Health": ("Check",),
    "webagent.env.v1.EnvironmentService": (
        "ListTasks",
        "CreateSession",
        "Step",
        "Observe",
        "RenewLease",
        "CloseSession",
        "ListSessions",
        "GetCapabilities",
    ),
    "webagent.env.v1.ProbeService": ("GetTaskRule",),
    "webagent.inference.v1.InferenceService": ("Render", "Score", "GetModelInfo"),
    "webagent.evaluator.v1.EvaluatorService": ("Rescore", "Summarize"),
    "webagent.rollout.v1.RolloutService": ("GetCapabilities",),
    "webagent.trainer.v1.TrainerService": ("GetRun", "ListPolicyVersions"),
}
_RETRIES = {
    "maxAttempts": 4,
    "initialBackoff": "0.2s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_DEFAULT = ClientConfig()


def open_channel(target: str, config: ClientConfig = _DEFAULT) -> grpc.aio.Channel:
    """Opens a channel to "host:port" or "dns:///name:port". Every call on it must set `timeout`."""
    options = _options(config)
    if config.tls is None:
        inner = grpc.aio.insecure_channel(target, options=options)
    else:
        inner = grpc.aio.secure_channel(target, _credentials(config.tls), options=options)
    return _Channel(inner, _authorization(config.token_file))


async def pick_address(target: str, key: str) -> str:
    """Resolves `target` and picks the address that owns `key`: the same one for as long as it is there."""
    addresses = sorted(await _resolve(target))
    return max(addresses, key=lambda address: hashlib.sha256(f"{address}\0{key}".encode()).digest())


async def _resolve(target: str) -> set[str]:
    found: set[str] = set()
    for part in target.removeprefix("ipv4:").removeprefix("dns:///").split(","):
        host, _, port = part.strip().rpartition(":")
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(
                host.strip("[]"), int(port), family=socket.AF_UNSPEC, type=socket.SOCK_STREAM
            )
        except ValueError:
            raise ConfigError(f"{target}: not an address; write host:port") from None
        except socket.gaierror as error:
            message = f"{host} cannot be resolved: {error.strerror}"
            raise ServiceError(grpc.StatusCode.UNAVAILABLE, "NAME_NOT_RESOLVED", message) from None
        found.update(_join(str(info[4][0]), int(info[4][1])) for info in infos)
    return found


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Channel(grpc.aio.Channel):
    """Hands out callables that insist on a deadline and carry span and token."""

    def __init__(self, inner: grpc.aio.Channel, authorization: tuple[tuple[str, str], ...]) -> None:
        self._inner = inner
        self._authorization = authorization

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(self._inner.unary_unary(method, *args, **kwargs), method)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(self._inner.unary_stream(method, *args, **kwargs), method)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(self._inner.stream_unary(method, *args, **kwargs), method)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(self._inner.stream_stream(method, *args, **kwargs), method)

    def _callable(self, inner: Callable[..., Any], method: str) -> Callable[..., Any]:
        def call(request: Any = None, *, timeout: float | None = None, metadata: Any = None, **options: Any) -> Any:
            if timeout is None:
                raise TypeError(f"{method} needs a deadline: pass timeout=seconds")
            span = tracer().start_span(method.lstrip("/"), kind=trace.SpanKind.CLIENT)
            with trace.use_span(span, end_on_exit=False):
                headers = tuple(trace_headers().items())
            sent = grpc.aio.Metadata(*(metadata or ()), *headers, *self._authorization)
            running = inner(request, timeout=timeout, metadata=sent, **options)
            running.add_done_callback(lambda ended: _end_span(span, ended))
            return running

        return call

    async def close(self, grace: float | None = None) -> None:
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._inner.channel_ready()

    async def __aenter__(self) -> "_Channel":
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def _end_span(span: trace.Span, call: Any) -> None:
    # The call is over, so its code is there without waiting; a coroutine is only the form it comes in.
    reading = call.code()
    try:
        reading.send(None)
    except StopIteration as stop:
        code = stop.value
        span.set_attribute("rpc.grpc.status_code", code.value[0])
        if code is not grpc.StatusCode.OK:
            span.set_status(trace.StatusCode.ERROR, code.name)
    finally:
        reading.close()
        span.end()


def _options(config: ClientConfig) -> list[tuple[str, Any]]:
    names = [{"service": service, "method": method} for service, methods in IDEMPOTENT.items() for method in methods]
    policy = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [{"name": names, "retryPolicy": _RETRIES}],
    }
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", json.dumps(policy)),
        # Service configuration from DNS could undo what the contracts say about retries.
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_send_message_length", config.max_message_bytes),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.keepalive_time_ms", round(config.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A server that restarts is found again within this, not after gRPC's two minutes.
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
    ]
    if config.tls is not None and config.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", config.tls.server_name))
    return options


def _credentials(tls: ClientTlsConfig) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_read("tls.ca_file", tls.ca_file),
        private_key=_read("tls.key_file", tls.key_file),
        certificate_chain=_read("tls.cert_file", tls.cert_file),
    )


def _authorization(token_file: Path | None) -> tuple[tuple[str, str], ...]:
    token = _read("token_file", token_file)
    return () if token is None else (("authorization", f"Bearer {token.decode().strip()}"),)


def _read(field: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{field} {path}: {error.strerror}") from None
