"""The one way to serve gRPC: bounded messages, keepalive, health, reflection, TLS, tokens, metrics, drain.

Life of a server: `start` binds all ports and is alive; `set_ready(True)` makes its services SERVING; a first SIGTERM or
SIGINT makes them NOT_SERVING, runs the service's own drain and lets calls in flight end, all within `drain_seconds`;
a second signal cuts that short; a third one kills the process.
"""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import prometheus_client
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from webagent_runtime import health
from webagent_runtime.certificates import server_credentials
from webagent_runtime.config import ConfigError, ServerConfig
from webagent_runtime.interceptors import Admit, Fail, Observe
from webagent_runtime.tokens import Tokens

log = structlog.get_logger()

METADATA_BYTES = 32 * 1024
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WILDCARDS = {"0.0.0.0", "::", "[::]", ""}  # noqa: S104  compared with, not bound to


class Server:
    """One gRPC server with everything around it. Use it inside the running event loop."""

    def __init__(self, config: ServerConfig, *, name: str, version: str) -> None:
        self._config = config
        self._name = name
        self._version = version
        self._registrations: list[Callable[[grpc.aio.Server], None]] = []
        self._scopes: dict[str, str] = {}
        self._health = health.Health()
        self._servers: list[grpc.aio.Server] = []
        self._metrics: Any = None
        self._signals = 0
        self._asked_to_stop = asyncio.Event()
        self._asked_to_hurry = asyncio.Event()
        self.port = 0
        self.health_port: int | None = None
        self.metrics_port: int | None = None
        self.address = ""

    def add(
        self, register: Callable[[Any, grpc.aio.Server], None], servicer: object, *, service: str, scope: str
    ) -> None:
        """Adds a service before `start`; with tokens on, its calls need `scope`."""
        self._registrations.append(lambda server: register(servicer, server))
        self._scopes[service] = scope
        self._health.set([service], False)

    async def start(self) -> None:
        """Binds all ports and answers calls; the services are not ready yet."""
        config = self._config
        tokens = Tokens(config.tokens_file) if config.tokens_file is not None else None
        server = grpc.aio.server(
            interceptors=[Observe(), Fail(), Admit(self._scopes, tokens)], options=_options(config)
        )
        for register in self._registrations:
            register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if config.reflection:
            _add_reflection(server, [*self._scopes, health.SERVICE, reflection.SERVICE_NAME])
        credentials = server_credentials(config.tls) if config.tls is not None else None
        self.port = _bind(server, "port", config.host, config.port, credentials)
        self.address = _advertised(config, self.port)
        self._servers = [server]
        if config.health_port is not None:
            probe = grpc.aio.server(options=_options(config))
            health_pb2_grpc.add_HealthServicer_to_server(self._health, probe)
            self.health_port = _bind(probe, "health_port", config.host, config.health_port, None)
            self._servers.append(probe)
        self._start_metrics()
        for each in self._servers:
            await each.start()
        _take_signals(self)
        log.info("server_started", server=self._name, version=self._version, address=self.address)

    def set_ready(self, ready: bool) -> None:
        """Sets the health of all added services."""
        self._health.set(list(self._scopes), ready)

    async def run(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Serves until SIGTERM or SIGINT, which count from `start` on, then drains and stops."""
        await self._asked_to_stop.wait()
        log.info("draining", server=self._name, bound_seconds=self._config.drain_seconds)
        self.set_ready(False)
        await self._drain(drain)
        log.info("server_stopped", server=self._name)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those in flight `grace` seconds and closes all ports."""
        _release_signals(self)
        self._health.close()
        await asyncio.gather(*(server.stop(grace) for server in self._servers))
        if self._metrics is not None:
            http_server, thread = self._metrics
            self._metrics = None
            await asyncio.to_thread(http_server.shutdown)
            http_server.server_close()
            await asyncio.to_thread(thread.join)

    def on_signal(self) -> None:
        """The first signal asks `run` to drain, the second one to hurry."""
        self._signals += 1
        if self._signals == 1:
            self._asked_to_stop.set()
            return
        log.warning("drain_cut_short", server=self._name)
        self._asked_to_hurry.set()
        _release_signals(self)

    async def _drain(self, drain: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._config.drain_seconds

        async def finish() -> None:
            try:
                async with asyncio.timeout_at(end):
                    await drain()
            except TimeoutError:
                log.warning("drain_ran_out_of_time", server=self._name)
            await self.stop(max(0.0, end - loop.time()))

        finishing = asyncio.create_task(finish())
        hurrying = asyncio.create_task(self._asked_to_hurry.wait())
        await asyncio.wait({finishing, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if finishing.done():
            finishing.result()
            return
        finishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await finishing
        await self.stop(0)

    def _start_metrics(self) -> None:
        port = self._config.metrics_port
        if port is None:
            return
        _check_free("metrics_port", self._config.host, port)
        self._metrics = prometheus_client.start_http_server(port, self._config.host)
        self.metrics_port = self._metrics[0].server_port


# The servers of this process that still want its signals.
_listening: list[Server] = []


def _take_signals(server: Server) -> None:
    if not _listening:
        for signum in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(signum, _dispatch_signal)
    _listening.append(server)


def _dispatch_signal() -> None:
    for server in tuple(_listening):
        server.on_signal()


def _release_signals(server: Server) -> None:
    """After the last release a signal has its usual effect: it ends the process, whatever hangs."""
    if server in _listening:
        _listening.remove(server)
        if not _listening:
            for signum in _SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(signum)


def time_left(context: grpc.aio.ServicerContext[Any, Any], cap: float) -> float:
    """Seconds until the caller's deadline, at most `cap`."""
    remaining = context.time_remaining()
    return cap if remaining is None else max(0.0, min(remaining, cap))


def _add_reflection(server: grpc.aio.Server, names: list[str]) -> None:
    servicer = reflection.aio.ReflectionServicer(names)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    # The library knows v1alpha only; v1 has the same messages and is what newer clients ask for first.
    for service in (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection"):
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": handler}),)
        )


def _options(config: ServerConfig) -> list[tuple[str, Any]]:
    keepalive = round(config.keepalive_seconds * 1000)
    return [
        # Two processes on one port would each get some of the connections; the second must fail instead.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_send_message_length", config.max_message_bytes),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_permit_without_calls", 1),
        # Half of the clients' interval. The look-alike "min_recv_ping_interval..." is silently ignored.
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive // 2),
        ("grpc.max_connection_age_ms", round(config.max_connection_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", round(config.max_connection_grace_seconds * 1000)),
    ]


def _bind(server: grpc.aio.Server, field: str, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
    _check_free(field, host, port)
    target = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(target)
        return server.add_secure_port(target, credentials)
    except RuntimeError as error:
        raise ConfigError(f"{field} {port} on {host} cannot be bound: {error}") from None


def _check_free(field: str, host: str, port: int) -> None:
    """Tries the port first: gRPC's own failure does not say why and writes to stderr."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
            message = f"{field} {port} on {host} {why}; stop what holds it or set another {field}"
            raise ConfigError(message) from None


def _advertised(config: ServerConfig, port: int) -> str:
    if config.advertise is None:
        host = socket.gethostname() if config.host in _WILDCARDS else config.host
        return f"{host}:{port}"
    return config.advertise if config.advertise.rpartition(":")[2].isdecimal() else f"{config.advertise}:{port}"
