"""The one way to call another service: a deadline on every call, keepalive, round robin, bounded messages.

Calls that the contracts declare idempotent are retried by gRPC itself while the server is UNAVAILABLE, within their
deadline; all others are left to the caller. The current span and the bearer token travel in the metadata.
"""

import asyncio
import hashlib
import json
import socket
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import structlog
from opentelemetry import trace

from webagent_runtime.certificates import channel_credentials
from webagent_runtime.config import ClientConfig, ConfigError
from webagent_runtime.errors import ServiceError
from webagent_runtime.secret_files import Token, Watched
from webagent_runtime.server import METADATA_BYTES
from webagent_runtime.telemetry import trace_headers, tracer

log = structlog.get_logger()

# Bound on calls that are under way on a channel with old certificates.
_OLD_CHANNEL_SECONDS = 1800.0
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
    return _Channel(target, config)


async def pick_address(target: str, key: str, *, refusals: int = 0) -> str:
    """Resolves `target` and picks the address that owns `key`: the same one for as long as it is there.

    Each key has an order of its own over all addresses; after so many `refusals` it is the turn of the next one.
    """
    addresses = await _resolve(target)
    order = sorted(addresses, key=lambda address: hashlib.sha256(f"{address}\0{key}".encode()).digest(), reverse=True)
    return order[refusals % len(order)]


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
    """Hands out callables that insist on a deadline and carry span and token; opened anew for renewed certificates."""

    def __init__(self, target: str, config: ClientConfig) -> None:
        self._target = target
        self._config = config
        self._token = None if config.token_file is None else Token("token_file", config.token_file)
        tls = config.tls
        self._certificates = Watched([] if tls is None else [tls.ca_file, tls.cert_file, tls.key_file])
        self._inner = self._opened()
        self._closing: set[asyncio.Task[None]] = set()

    def _opened(self) -> grpc.aio.Channel:
        options = _options(self._config)
        if self._config.tls is None:
            return grpc.aio.insecure_channel(self._target, options=options)
        return grpc.aio.secure_channel(self._target, channel_credentials(self._config.tls), options=options)

    def _current(self) -> grpc.aio.Channel:
        """The channel for the next call; calls that are under way on an older one may end there."""
        if self._certificates.changed():
            try:
                renewed = self._opened()
            except ConfigError as error:
                log.warning("certificate_not_renewed", error=str(error))
            else:
                task = asyncio.create_task(self._inner.close(_OLD_CHANNEL_SECONDS))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                self._inner = renewed
                log.info("certificate_renewed", target=self._target)
        return self._inner

    def _authorization(self) -> tuple[tuple[str, str], ...]:
        return () if self._token is None else (("authorization", f"Bearer {self._token.value()}"),)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(lambda channel: channel.unary_unary(method, *args, **kwargs), method)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(lambda channel: channel.unary_stream(method, *args, **kwargs), method)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(lambda channel: channel.stream_unary(method, *args, **kwargs), method)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable(lambda channel: channel.stream_stream(method, *args, **kwargs), method)

    def _callable(self, made: Callable[[grpc.aio.Channel], Any], method: str) -> Callable[..., Any]:
        opened = self._inner
        inner = made(opened)

        def call(request: Any = None, *, timeout: float | None = None, metadata: Any = None, **options: Any) -> Any:
            nonlocal opened, inner
            if timeout is None:
                raise TypeError(f"{method} needs a deadline: pass timeout=seconds")
            current = self._current()
            if current is not opened:
                opened, inner = current, made(current)
            span = tracer().start_span(method.lstrip("/"), kind=trace.SpanKind.CLIENT)
            with trace.use_span(span, end_on_exit=False):
                headers = tuple(trace_headers().items())
            sent = grpc.aio.Metadata(*(metadata or ()), *headers, *self._authorization())
            running = inner(request, timeout=timeout, metadata=sent, **options)
            running.add_done_callback(lambda ended: _end_span(span, ended))
            return running

        return call

    async def close(self, grace: float | None = None) -> None:
        await asyncio.gather(self._inner.close(grace), *(self._cut(task) for task in self._closing))

    @staticmethod
    async def _cut(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})

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
