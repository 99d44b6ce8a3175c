"""What a caller may be told: one function a reason, each naming the boundary that failed.

An action that the page refused is none of these; it is an outcome of `Step` (see `actions.Failed` and `Rejected`).
Environment faults (`browser_crashed`, `site_lost`, ...) must never be taken for a reward of zero.
"""

from __future__ import annotations

from grpc import StatusCode
from webagent_runtime.errors import ServiceError


def invalid_request(message: str) -> ServiceError:
    """The request breaks the contract."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", message)


def suite_not_found(suite: str, known: list[str]) -> ServiceError:
    """No such suite."""
    return ServiceError(
        StatusCode.NOT_FOUND, "SUITE_NOT_FOUND", f"no suite {suite!r}; this service has {', '.join(known)}"
    )


def task_not_found(suite: str, task_id: str, nearest: str) -> ServiceError:
    """No such task in the suite."""
    return ServiceError(
        StatusCode.NOT_FOUND, "TASK_NOT_FOUND", f"no task {task_id!r} in suite {suite!r}; the nearest is {nearest!r}"
    )


def site_unavailable(site: str, why: str) -> ServiceError:
    """A site of the task is down, broken, or does not let us sign in: its tasks are invalid until it is well."""
    return ServiceError(StatusCode.UNAVAILABLE, "SITE_UNAVAILABLE", f"site {site!r}: {why}", retry_after=10.0)


def site_lost(session_id: str, why: str) -> ServiceError:
    """A site of the task broke under the session; nothing about the episode can be concluded from it."""
    return ServiceError(StatusCode.ABORTED, "SITE_UNAVAILABLE", f"session {session_id!r}: {why}")


def site_busy(site: str, why: str) -> ServiceError:
    """A site of the task bears no further session now."""
    return ServiceError(StatusCode.RESOURCE_EXHAUSTED, "SITE_BUSY", f"site {site!r}: {why}", retry_after=5.0)


def session_not_found(session_id: str) -> ServiceError:
    """Never created here, closed, or reaped."""
    return ServiceError(StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", f"no session {session_id!r} on this replica")


def session_conflict(session_id: str) -> ServiceError:
    """The id is taken by a session that was asked for differently."""
    return ServiceError(
        StatusCode.ALREADY_EXISTS, "SESSION_CONFLICT", f"session {session_id!r} exists with another request"
    )


def at_capacity(capacity: int) -> ServiceError:
    """All sessions of this replica are taken."""
    return ServiceError(
        StatusCode.RESOURCE_EXHAUSTED, "AT_CAPACITY", f"all {capacity} sessions are taken", retry_after=1.0
    )


def draining() -> ServiceError:
    """This replica shuts down and takes nothing new."""
    return ServiceError(StatusCode.UNAVAILABLE, "DRAINING", "this replica is shutting down", retry_after=1.0)


def browser_unavailable(why: str) -> ServiceError:
    """No browser could be started, or it broke while the session was set up."""
    return ServiceError(StatusCode.UNAVAILABLE, "BROWSER_UNAVAILABLE", why, retry_after=2.0)


def browser_crashed(session_id: str, what: str) -> ServiceError:
    """The session's browser or page died; nothing about the episode can be concluded from it."""
    return ServiceError(StatusCode.ABORTED, "BROWSER_CRASHED", f"session {session_id!r}: {what}")


def reset_timeout(task: str, seconds: float) -> ServiceError:
    """The task's page did not come up in time."""
    return ServiceError(
        StatusCode.DEADLINE_EXCEEDED, "RESET_TIMEOUT", f"task {task!r} was not ready within {seconds:g} s"
    )


def step_timeout(session_id: str, seconds: float) -> ServiceError:
    """An action or an observation did not end in time; the session's page cannot be trusted any more."""
    return ServiceError(
        StatusCode.DEADLINE_EXCEEDED,
        "STEP_TIMEOUT",
        f"session {session_id!r}: no answer from the page in {seconds:g} s",
    )


def episode_over(session_id: str) -> ServiceError:
    """The episode ended; the session is still readable."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "EPISODE_OVER", f"session {session_id!r}: the episode is over")


def step_out_of_order(expected: int, given: int) -> ServiceError:
    """A step index was skipped."""
    return ServiceError(
        StatusCode.FAILED_PRECONDITION, "STEP_OUT_OF_ORDER", f"the next step is {expected}, not {given}"
    )


def step_conflict(step_index: int) -> ServiceError:
    """The step was already taken with another action."""
    return ServiceError(
        StatusCode.ALREADY_EXISTS, "STEP_CONFLICT", f"step {step_index} was already taken with another action"
    )


def probe_failed(why: str) -> ServiceError:
    """The script threw, or the address did not load."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, "PROBE_FAILED", why)


def probe_timeout(seconds: float) -> ServiceError:
    """The page did not answer the probe in time."""
    return ServiceError(StatusCode.DEADLINE_EXCEEDED, "PROBE_TIMEOUT", f"no answer from the page in {seconds:g} s")
