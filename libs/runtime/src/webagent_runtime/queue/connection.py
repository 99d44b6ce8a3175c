"""One connection to NATS that outlives the server: it reconnects for ever, and what it does meanwhile is bounded.

`publish` returns once the server has stored the message. It retries with the same dedupe id for as long as
`publish_timeout` allows, so a lost acknowledgement stores nothing twice; a full stream slows it down.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import nats
import nats.errors
import nats.js.errors
import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_before_delay, wait_exponential

from webagent_runtime.config import ClientTlsConfig, QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.telemetry import trace_headers

log = structlog.get_logger()

STREAM_FULL = 10077
WRONG_LAST_SEQUENCE = {10071, 10164}
_RECONNECT_SECONDS = 0.5
_BACKOFF_SECONDS = (0.05, 2.0)
# Errors that the same request may not meet again. Others are the caller's fault and are raised at once.
TRANSIENT = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionReconnectingError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)


class Connection:
    """A NATS client together with what it needs to survive a restart of the server."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self._connected = asyncio.Event()
        self._disconnected = asyncio.Event()
        self._closing = False
        self._last_error = "no answer"
        self.nats: Any = nats.NATS()
        self.js: Any = None

    @classmethod
    async def open(cls, config: QueueConfig, name: str) -> "Connection":
        """Connects within `connect_timeout`, or raises a ServiceError that says where it tried."""
        connection = cls(config)
        try:
            async with asyncio.timeout(config.connect_timeout):
                await connection._connect(name)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await connection.close()
            cause = connection._last_error if isinstance(error, TimeoutError) else str(error)
            message = f"NATS at {config.url} cannot be reached ({cause}); start it or set queue.url"
            raise ServiceError(grpc.StatusCode.UNAVAILABLE, "QUEUE_UNAVAILABLE", message) from None
        return connection

    async def _connect(self, name: str) -> None:
        config = self.config
        options: dict[str, Any] = {}
        if config.credentials_file is not None:
            options["user_credentials"] = str(config.credentials_file)
        if config.tls is not None:
            options["tls"] = _ssl_context(config.tls)
            options["tls_hostname"] = config.tls.server_name
        await self.nats.connect(
            servers=[server.strip() for server in config.url.split(",")],
            name=name,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_SECONDS,
            reconnect_to_server_handler=self._next_server,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_close,
            **options,
        )
        self._on_connect()
        self.js = self.nats.jetstream(timeout=config.request_timeout)

    async def close(self) -> None:
        """Sends what is buffered, if the server is there, and disconnects."""
        self._closing = True
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            if self.nats.is_connected:
                await self.nats.flush(timeout=round(self.config.request_timeout) or 1)
        with contextlib.suppress(OSError):
            await self.nats.close()

    def _next_server(self, servers: list[Any], _info: dict[str, Any]) -> tuple[Any, float]:
        """Chooses where to reconnect to, and when."""
        if self._closing:
            # The client's own cancellation of its reconnecting can get lost; this one cannot.
            raise asyncio.CancelledError
        self._read_certificates_again()
        server = min(servers, key=lambda each: each.reconnects)
        return server, _RECONNECT_SECONDS if server.reconnects else 0.0

    async def wait_connected(self, timeout: float) -> bool:
        """Waits until the server is there; False if it is not within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    async def publish(
        self, subject: str, payload: bytes, *, stream: str, message_id: str | None = None, if_absent: bool = False
    ) -> bool:
        """Stores a message. False: `if_absent` was asked and the subject holds a message already."""
        headers = {"Nats-Expected-Stream": stream, **trace_headers()}
        if message_id is not None:
            headers["Nats-Msg-Id"] = message_id
        if if_absent:
            headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        try:
            await self.retry(f"publish on {subject}", self._publish_once, subject, payload, headers)
        except nats.js.errors.APIError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                return False
            raise ServiceError(grpc.StatusCode.INTERNAL, "QUEUE_REFUSED", f"publish on {subject}: {error}") from error
        return True

    async def retry(self, what: str, attempt: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Calls `attempt` until it succeeds, backing off, within `publish_timeout`."""
        seconds = self.config.publish_timeout
        end = asyncio.get_running_loop().time() + seconds
        first_pause, longest_pause = _BACKOFF_SECONDS
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TRANSIENT),
            stop=stop_before_delay(seconds),
            wait=wait_exponential(first_pause, max=longest_pause),
            reraise=True,
        )
        try:
            return await retrying(self._once_connected, end, attempt, *arguments)
        except TRANSIENT as error:
            raise _exhausted(what, seconds, error) from error

    async def _once_connected(self, end: float, attempt: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        if await self.wait_connected(end - asyncio.get_running_loop().time()):
            return await self.once(attempt, *arguments)
        raise nats.errors.ConnectionReconnectingError

    async def once(self, attempt: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """One attempt, given up as soon as the connection is lost: its answer would never come.

        Runs in a task of its own, since the client library may swallow a cancellation.
        """
        attempting = asyncio.ensure_future(attempt(*arguments))
        losing = asyncio.create_task(self._disconnected.wait())
        try:
            await asyncio.wait({attempting, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not attempting.done():
                raise nats.errors.ConnectionReconnectingError
            return attempting.result()
        finally:
            attempting.cancel()
            losing.cancel()

    async def request(self, subject: str, payload: bytes = b"") -> Any:
        """One request and its answer."""
        return await self.once(self._request, subject, payload)

    async def _request(self, subject: str, payload: bytes) -> Any:
        return await self.nats.request(subject, payload, timeout=self.config.request_timeout)

    async def _publish_once(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        await self.js.publish(subject, payload, headers=dict(headers))

    async def _on_error(self, error: Exception) -> None:
        self._last_error = str(error) or type(error).__name__
        log.info("queue_error", error=self._last_error)

    def _on_connect(self) -> None:
        self._disconnected.clear()
        self._connected.set()

    async def _on_disconnect(self) -> None:
        self._connected.clear()
        self._disconnected.set()
        if not self._closing:
            log.warning("queue_disconnected", url=self.config.url)

    def _read_certificates_again(self) -> None:
        """They may have been renewed since: the next connection shows and trusts what the files hold now."""
        if self.config.tls is None:
            return
        try:
            self.nats.options["tls"] = _ssl_context(self.config.tls)
        except OSError as error:
            log.warning("certificate_not_renewed", error=str(error))

    async def _on_reconnect(self) -> None:
        self._on_connect()
        log.info("queue_reconnected", url=self.config.url)

    async def _on_close(self) -> None:
        self._connected.clear()
        log.debug("queue_closed", url=self.config.url)


def is_full(error: BaseException) -> bool:
    """Whether the server refused a message because its stream is full."""
    return isinstance(error, nats.js.errors.APIError) and error.err_code == STREAM_FULL


def _exhausted(what: str, seconds: float, error: Exception) -> ServiceError:
    if is_full(error):
        message = f"{what}: the stream stayed full for {seconds:g} s; its consumers do not keep up"
        return ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", message, retry_after=seconds)
    message = f"{what}: no acknowledgement within {seconds:g} s ({error})"
    return ServiceError(grpc.StatusCode.UNAVAILABLE, "QUEUE_UNAVAILABLE", message, retry_after=1.0)


def _ssl_context(tls: ClientTlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
