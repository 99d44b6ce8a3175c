"""grpc.health.v1 with both meanings: "" says that the process lives, a service's name that it takes calls.

Watch streams end when the server stops, so that they never hold up a drain.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVICE = "grpc.health.v1.Health"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the base class is untyped
    """The health of one process and of each of its services."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {"": True}
        self._changed = asyncio.Event()
        self._closed = False

    def set(self, services: list[str], serving: bool) -> None:
        """Sets the health of these services and tells all watchers."""
        self._serving.update(dict.fromkeys(services, serving))
        self._wake()

    def close(self) -> None:
        """Ends all Watch streams."""
        self._closed = True
        self._wake()

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Answers for one service."""
        if request.service not in self._serving:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} on this server")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(  # noqa: N802
        self, request: Any, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Streams one service's health: at once, then at each change."""
        last = None
        while not self._closed:
            changed = self._changed
            status = self._status(request.service)
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()

    def _status(self, service: str) -> Any:
        if service not in self._serving:
            return _UNKNOWN
        return _SERVING if self._serving[service] else _NOT_SERVING

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
