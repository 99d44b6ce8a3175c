"""The error model: what goes wrong is a ServiceError, and a ServiceError is what the caller sees.

    domain or servicer raises ServiceError ──► server's interceptor ──► google.rpc.Status
    client catches AioRpcError ──► from_rpc ──► ServiceError with the same code, reason, message and retry advice

`reason` is stable and machine-readable, the message is for people. Any other exception that leaves a servicer becomes
INTERNAL with reason INTERNAL, its traceback in the log and not on the wire.
"""

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "webagent"
STATUS_KEY = "grpc-status-details-bin"
# The message travels twice in the trailers, percent-encoded once: together it must stay below their size limit.
_MAX_MESSAGE_CHARACTERS = 1200


class ServiceError(Exception):
    """A failure with a stable reason; `retry_after` (seconds) is set when the same call may succeed later."""

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.reason, self.message, self.retry_after)


def _rebuild(
    kind: type[ServiceError], code: grpc.StatusCode, reason: str, message: str, retry_after: float | None
) -> ServiceError:
    error = kind.__new__(kind)
    ServiceError.__init__(error, code, reason, message, retry_after=retry_after)
    return error


def to_status(error: ServiceError) -> status_pb2.Status:
    """The error as a google.rpc.Status with its details."""
    message = error.message[:_MAX_MESSAGE_CHARACTERS]
    status = status_pb2.Status(code=error.code.value[0], message=message)
    status.details.append(_pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        status.details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status


def from_rpc(error: grpc.aio.AioRpcError) -> ServiceError:
    """The ServiceError that the server raised; its reason is the code's name where the server gave none."""
    reason = error.code().name
    message = error.details() or reason
    retry_after: float | None = None
    for detail in _details(error):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            reason = info.reason
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    return ServiceError(error.code(), reason, message, retry_after=retry_after)


def _details(error: grpc.aio.AioRpcError) -> list[any_pb2.Any]:
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            return list(status_pb2.Status.FromString(value).details)
    return []


def _pack(message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
