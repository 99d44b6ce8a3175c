"""What surrounds every call on a server, for all four kinds of RPC.

    Observe   a span (child of the caller's), metrics by method and code, log context
      └─ Fail     the one place where exceptions become status codes
           └─ Admit    deadline and bearer token, before the servicer sees the call

Cancellation is never caught: it ends the call's task as grpc meant it to.
"""

import abc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import structlog
from opentelemetry import trace

from webagent_runtime import errors, health, metrics
from webagent_runtime.errors import ServiceError
from webagent_runtime.telemetry import remote_span
from webagent_runtime.tokens import Tokens

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
_REFLECTION_PREFIX = "grpc.reflection."
_CODES: dict[object, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class Around(grpc.aio.ServerInterceptor, abc.ABC):
    """An interceptor that is one async context manager around the whole call, streams included."""

    @abc.abstractmethod
    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """Runs before, around and after the call of `method`, such as "/webagent.env.v1.EnvironmentService/Step"."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Wraps the method's handler, if there is one."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        behaviour = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        wrap = self._wrap_stream if handler.response_streaming else self._wrap_unary
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(wrap(behaviour, method), handler.request_deserializer, handler.response_serializer)

    def _wrap_unary(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> Any:
            async with self.around(method, context):
                return await behaviour(request, context)

        return call

    def _wrap_stream(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        # A coroutine that writes, not a generator: one of a caller who left would be closed later and in another task.
        async def call(request: Any, context: Context) -> None:
            async with self.around(method, context):
                responses = behaviour(request, context)
                if not hasattr(responses, "__aiter__"):
                    await responses
                    return
                async with aclosing(responses):
                    async for response in responses:
                        await context.write(response)

        return call


class Observe(Around):
    """Gives each call a span, counts it and puts its method into the log context."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Measures the call from its arrival to its end."""
        started = time.monotonic()
        headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        # Each call runs in a task of its own, so what is bound here ends with it.
        structlog.contextvars.bind_contextvars(rpc=method)
        cancelled = True
        with remote_span(method.lstrip("/"), headers, trace.SpanKind.SERVER) as span:
            try:
                yield
                cancelled = False
            except grpc.aio.AbortError:
                cancelled = False
                raise
            finally:
                code = grpc.StatusCode.CANCELLED if cancelled else _code(context)
                span.set_attribute("rpc.grpc.status_code", code.value[0])
                metrics.RPCS.labels(method, code.name).inc()
                metrics.RPC_SECONDS.labels(method, code.name).observe(time.monotonic() - started)


class Fail(Around):
    """Turns exceptions into rich statuses."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Aborts the call with what was raised in it."""
        try:
            yield
        except ServiceError as error:
            log.info("call_refused", code=error.code.name, reason=error.reason, error=error.message)
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) and _code(context) is grpc.StatusCode.UNIMPLEMENTED:
                # How generated code answers for a method that the servicer leaves out.
                await abort(context, ServiceError(grpc.StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED", f"no {method} here"))
            log.exception("call_failed")
            message = f"{type(error).__name__} in {method}; the server's log has the traceback"
            await abort(context, ServiceError(grpc.StatusCode.INTERNAL, "INTERNAL", message))


class Admit(Around):
    """Refuses calls without a deadline or without a token that has the service's scope."""

    def __init__(self, scopes: dict[str, str], tokens: Tokens | None) -> None:
        self._scopes = scopes
        self._tokens = tokens

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Checks the call before the servicer sees it."""
        service = method.strip("/").rpartition("/")[0]
        if service != health.SERVICE:
            reflection = service.startswith(_REFLECTION_PREFIX)
            if self._tokens is not None:
                self._tokens.check(context.invocation_metadata(), None if reflection else self._scopes[service])
            if context.time_remaining() is None and not reflection:
                message = f"{method} was called without a deadline; set a timeout on the call"
                raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "DEADLINE_REQUIRED", message)
        yield


async def abort(context: Context, error: ServiceError) -> None:
    """Ends the call with the error's rich status."""
    status = errors.to_status(error)
    trailers = ((errors.STATUS_KEY, status.SerializeToString()),)
    await context.abort(error.code, status.message, trailers)


def _code(context: Context) -> grpc.StatusCode:
    code: object = context.code()
    return code if isinstance(code, grpc.StatusCode) else _CODES.get(code, grpc.StatusCode.OK)
