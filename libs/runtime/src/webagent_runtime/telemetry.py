"""Logs and traces of one process.

Every log line is one event with fields; inside a span it carries the span's trace id. Lines of libraries that use
`logging` come out in the same form. Spans are always made, so that trace ids exist; they are exported only when an
endpoint is configured.
"""

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from webagent_runtime.config import TelemetryConfig

_EXPORT_TIMEOUT_SECONDS = 5


def setup(config: TelemetryConfig, service: str) -> None:
    """Configures logging and tracing for the whole process. Call it once, before the first log line."""
    level = logging.getLevelNamesMapping()[config.log_level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_id,
        _ServiceName(service),
    ]
    if config.log_format == "json":
        rendering: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        rendering = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_own_logger,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    # At "debug" the libraries' own chatter would bury ours.
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler], force=True)
    _own_logger().setLevel(level)
    _setup_tracing(config, service)


def shutdown() -> None:
    """Sends the spans that are still held back."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()


def tracer() -> trace.Tracer:
    """The tracer of this package's own spans."""
    return trace.get_tracer("webagent")


def trace_headers() -> dict[str, str]:
    """The current span as W3C headers, for gRPC metadata or NATS headers. Empty outside any span."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


@contextmanager
def remote_span(name: str, headers: dict[str, str], kind: trace.SpanKind) -> Iterator[trace.Span]:
    """A span, current inside the block, whose parent is named by the headers of a call or message."""
    with tracer().start_as_current_span(name, context=propagate.extract(headers), kind=kind) as span:
        yield span


def _own_logger(*_arguments: object) -> logging.Logger:
    return logging.getLogger("webagent")


def _setup_tracing(config: TelemetryConfig, service: str) -> None:
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    if config.otlp_endpoint is not None:
        # Imported here: the exporter costs start-up time that most processes need not pay.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        insecure = not config.otlp_endpoint.startswith("https://")
        exporter = OTLPSpanExporter(config.otlp_endpoint, insecure=insecure, timeout=_EXPORT_TIMEOUT_SECONDS)
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _add_trace_id(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
    return event


class _ServiceName:
    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = self._service
        return event
