"""What the service refuses and why: each error of the contract, made in one place.

Refusals of a request (INVALID_ARGUMENT) never become valid by trying again. UNAVAILABLE and RESOURCE_EXHAUSTED carry
retry advice where waiting helps. Update errors name the version; the version that served before goes on serving.
"""

from grpc import StatusCode
from webagent_runtime.errors import ServiceError


def invalid(message: str) -> ServiceError:
    """A malformed request."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", message)


def unknown_token(token: int, vocab_size: int) -> ServiceError:
    """A token id outside the vocabulary."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, "UNKNOWN_TOKEN", f"token {token} is not below {vocab_size}")


def prompt_too_long(length: int, limit: int) -> ServiceError:
    """A prompt that leaves no room for a single token."""
    message = f"{length} tokens do not leave room for another in a context of {limit}"
    return ServiceError(StatusCode.INVALID_ARGUMENT, "PROMPT_TOO_LONG", message)


def unsupported_sampling(message: str) -> ServiceError:
    """Sampling settings that the backends cannot honour exactly."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, "UNSUPPORTED_SAMPLING", message)


def version_not_ready(wanted: int, served: int, retry_after: float) -> ServiceError:
    """This replica serves an older policy than asked for."""
    message = f"version {served} is served here, {wanted} is asked for"
    return ServiceError(StatusCode.UNAVAILABLE, "VERSION_NOT_READY", message, retry_after=retry_after)


def queue_full(limit: int, retry_after: float) -> ServiceError:
    """As many requests as the replica takes are in work."""
    message = f"{limit} requests are in work"
    return ServiceError(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", message, retry_after=retry_after)


def degraded(why: str) -> ServiceError:
    """A reply for training is asked of a backend whose replies cannot be trained on."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "DEGRADED", f"replies cannot be trained on: {why}")


def unsupported(what: str) -> ServiceError:
    """The backend cannot do this at all."""
    return ServiceError(StatusCode.UNIMPLEMENTED, "UNSUPPORTED", f"the backend of this replica {what}")


def upstream_failed(message: str, retry_after: float) -> ServiceError:
    """The endpoint behind this service did not answer properly; it may the next time."""
    return ServiceError(StatusCode.UNAVAILABLE, "UPSTREAM_FAILED", message, retry_after=retry_after)


def upstream_busy(message: str, retry_after: float) -> ServiceError:
    """The endpoint behind this service takes no more requests now."""
    return ServiceError(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", message, retry_after=retry_after)


def upstream_refused(message: str) -> ServiceError:
    """The endpoint behind this service refuses the request, and will again."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "UPSTREAM_REFUSED", message)


def model_not_found(wanted: str, served: str) -> ServiceError:
    """Another model than the one that is served is asked for by name."""
    return ServiceError(StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", f"{wanted!r} is not served here, {served!r} is")


def draining(retry_after: float) -> ServiceError:
    """The replica is shutting down."""
    return ServiceError(StatusCode.UNAVAILABLE, "DRAINING", "shutting down", retry_after=retry_after)


def engine_dead(cause: str, retry_after: float) -> ServiceError:
    """The engine crashed; it is started again, or the process is."""
    return ServiceError(StatusCode.UNAVAILABLE, "ENGINE_DEAD", f"the engine died: {cause}", retry_after=retry_after)


def weights_not_found(uri: str, what: str) -> ServiceError:
    """Files of a version are absent."""
    return ServiceError(StatusCode.NOT_FOUND, "WEIGHTS_NOT_FOUND", f"{uri}: {what}")


def checksum_mismatch(message: str) -> ServiceError:
    """Files of a version are not what its manifest says."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "CHECKSUM_MISMATCH", message)


def canary_mismatch(message: str) -> ServiceError:
    """The loaded weights do not compute what the trainer computed."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "CANARY_MISMATCH", message)


def cache_not_reset() -> ServiceError:
    """The prefix cache still holds entries of other weights."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "CACHE_NOT_RESET", "the prefix cache could not be emptied")


def version_conflict(version: int) -> ServiceError:
    """A number that was seen with another digest."""
    message = f"version {version} is known with another manifest digest; numbers are never used twice"
    return ServiceError(StatusCode.ALREADY_EXISTS, "VERSION_CONFLICT", message)


def update_failed(message: str) -> ServiceError:
    """Anything else that kept a version from being served."""
    return ServiceError(StatusCode.ABORTED, "UPDATE_FAILED", message)


def deadline_exceeded(seconds: float) -> ServiceError:
    """The caller's deadline, or the service's own bound, passed."""
    return ServiceError(StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", f"not done within {seconds:.1f} s")


def loading(retry_after: float) -> ServiceError:
    """The model is not there yet."""
    message = "the model is being loaded"
    return ServiceError(StatusCode.UNAVAILABLE, "VERSION_NOT_READY", message, retry_after=retry_after)
