"""One trace from caller to servicer, across gRPC and the queue, its id in every log line."""

import asyncio
import json
import logging
import sys
from concurrent import futures

import grpc
import pytest
import structlog
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent_runtime import telemetry
from webagent_runtime.client import open_channel
from webagent_runtime.config import TelemetryConfig

log = structlog.get_logger()


@pytest.fixture(autouse=True)
def restored():
    """Undoes `setup`, which each test calls itself: the stream that pytest captures is its own."""
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers.clear()


def setup(**fields: str) -> None:
    telemetry.setup(TelemetryConfig(**{"log_format": "json", **fields}), "test")


def trace_id_here() -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


def lines_of(capsys) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]


async def test_a_call_and_its_servicer_share_one_trace(serve, env, capsys):
    setup()
    server = await serve()
    with telemetry.tracer().start_as_current_span("caller"):
        expected = trace_id_here()
        async with open_channel(server.address) as channel:
            stub = env_pb2_grpc.EnvironmentServiceStub(channel)
            await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=5)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Step(env_pb2.StepRequest(), timeout=5)
    assert env.metadata["traceparent"].split("-")[1] == expected
    (failed,) = [line for line in lines_of(capsys) if line["event"] == "call_failed"]
    assert failed["trace_id"] == expected
    assert failed["rpc"].endswith("/Step")
    assert "ValueError: a bug" in failed["exception"]


async def test_a_message_carries_the_senders_trace(connect, request_of):
    setup()
    async with connect() as queue:
        with telemetry.tracer().start_as_current_span("sender"):
            expected = trace_id_here()
            await queue.publish_request(request_of("a"))
        delivery = await queue.requests().next(5)
        async with delivery.held():
            assert trace_id_here() == expected
        await delivery.ack()


def test_lines_of_other_libraries_come_out_in_the_same_form(capsys):
    setup()
    logging.getLogger("other").warning("seen %d", 3)
    (line,) = lines_of(capsys)
    assert (line["event"], line["level"], line["service"]) == ("seen 3", "warning", "test")


def test_lines_outside_any_span_have_no_trace(capsys):
    setup()
    log.info("alone", number=1)
    (line,) = lines_of(capsys)
    assert "trace_id" not in line
    assert line["number"] == 1


def test_the_console_form_is_for_people(capsys):
    setup(log_format="console")
    log.info("hello", number=1)
    log.debug("unseen")
    text = capsys.readouterr().err
    assert "hello" in text
    assert "number=1" in text
    assert "unseen" not in text


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.names: list[str] = []

    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.names.extend(span.name for span in scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


PROGRAM = """
import sys
from webagent_runtime import telemetry
from webagent_runtime.config import TelemetryConfig
telemetry.setup(TelemetryConfig(otlp_endpoint=sys.argv[1]), "test")
with telemetry.tracer().start_as_current_span("work"):
    pass
telemetry.shutdown()
"""


async def test_spans_are_exported_when_an_endpoint_is_set():
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, f"http://127.0.0.1:{port}")
    assert await asyncio.wait_for(process.wait(), 30) == 0
    server.stop(0)
    assert collector.names == ["work"]
