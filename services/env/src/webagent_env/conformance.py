"""Checks any implementation of the contract: `webagent-env-conformance --target HOST:PORT [--task SUITE/TASK]`.

Each check is a promise of `webagent/env/v1/env.proto`, kept against a session of its own. The program prints one line
a check and ends with 1 if one failed. The task must be one whose first page stays when nothing is done to it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.errors import from_rpc

_TIMEOUT = 60.0
_WAIT = 'do(action="Wait")'


class FailedError(Exception):
    """A promise was not kept; the message says which and how."""


class Subject:
    """The implementation that is checked, and a task of it."""

    def __init__(self, stub: env_pb2_grpc.EnvironmentServiceAsyncStub, task: env_pb2.TaskRef) -> None:
        self.stub = stub
        self.task = task
        self.opened: list[str] = []

    def request(self, **changes: object) -> env_pb2.CreateSessionRequest:
        """A request for a session with an id of its own."""
        request = env_pb2.CreateSessionRequest(session_id=f"conformance-{uuid.uuid4().hex}", task=self.task, seed=1)
        for name, value in changes.items():
            setattr(request, name, value)
        self.opened.append(request.session_id)
        return request

    async def open(self) -> str:
        """Opens a session and returns its id."""
        request = self.request()
        await self.stub.CreateSession(request, timeout=_TIMEOUT)
        return request.session_id

    async def step(self, session_id: str, index: int, text: str) -> env_pb2.StepResponse:
        """Takes a step in the text form."""
        request = env_pb2.StepRequest(session_id=session_id, step_index=index, action_text=text)
        answer: env_pb2.StepResponse = await self.stub.Step(request, timeout=_TIMEOUT)
        return answer

    async def close(self) -> None:
        """Closes what the checks opened."""
        for session_id in self.opened:
            await self.stub.CloseSession(env_pb2.CloseSessionRequest(session_id=session_id), timeout=_TIMEOUT)
        self.opened.clear()


def require(kept: bool, what: str) -> None:
    """Fails with `what` unless it was kept."""
    if not kept:
        raise FailedError(what)


async def refused(call: Awaitable[object], code: grpc.StatusCode, reason: str) -> None:
    """Fails unless the call is refused with that code and reason."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        told = from_rpc(error)
        require(
            (told.code, told.reason) == (code, reason),
            f"expected {code.name} {reason}, got {told.code.name} {told.reason}",
        )
        return
    raise FailedError(f"expected {code.name} {reason}, but the call succeeded")


async def _tasks_are_listed_by_suite(subject: Subject) -> None:
    request = env_pb2.ListTasksRequest(suite=subject.task.suite)
    listed = [each.task for each in (await subject.stub.ListTasks(request, timeout=_TIMEOUT)).tasks]
    require(subject.task in listed, "the task is not in its suite's list")
    require(all(each.suite == subject.task.suite for each in listed), "the list has tasks of other suites")
    unknown = env_pb2.ListTasksRequest(suite="no-such-suite")
    await refused(subject.stub.ListTasks(unknown, timeout=_TIMEOUT), grpc.StatusCode.NOT_FOUND, "SUITE_NOT_FOUND")


async def _a_session_opens_with_its_page(subject: Subject) -> None:
    opened = await subject.stub.CreateSession(subject.request(), timeout=_TIMEOUT)
    require(opened.session.state == env_pb2.SESSION_STATE_ACTIVE, "a new session is not ACTIVE")
    require(opened.session.next_step_index == 0, "a new session's first step is not 0")
    require(bool(opened.session.address), "the session has no address")
    require(bool(opened.instruction), "the session has no instruction")
    require(bool(opened.observation.text), "the first observation has no text")
    require(opened.observation.url.startswith("http"), "the first observation has no address")


async def _opening_again_gives_the_same_session(subject: Subject) -> None:
    request = subject.request()
    first = await subject.stub.CreateSession(request, timeout=_TIMEOUT)
    await subject.step(request.session_id, 0, _WAIT)
    second = await subject.stub.CreateSession(request, timeout=_TIMEOUT)
    require(second.session.created_at == first.session.created_at, "the second call opened another session")
    require(second.session.next_step_index == 1, "the second call does not tell of the step taken since")
    request.seed += 1
    again = subject.stub.CreateSession(request, timeout=_TIMEOUT)
    await refused(again, grpc.StatusCode.ALREADY_EXISTS, "SESSION_CONFLICT")


async def _the_same_seed_gives_the_same_page(subject: Subject) -> None:
    opened = [await subject.stub.CreateSession(subject.request(), timeout=_TIMEOUT) for _ in range(2)]
    require(opened[0].instruction == opened[1].instruction, "the instructions differ")
    require(opened[0].observation.text == opened[1].observation.text, "the pages differ")


async def _bad_requests_are_refused(subject: Subject) -> None:
    bad = subject.stub.CreateSession(subject.request(session_id="not an id!"), timeout=_TIMEOUT)
    subject.opened.pop()
    await refused(bad, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    request = subject.request()
    request.task.task_id = "no-such-task"
    await refused(subject.stub.CreateSession(request, timeout=_TIMEOUT), grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    await refused(subject.step("no-such-session", 0, _WAIT), grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def _a_step_is_taken_once(subject: Subject) -> None:
    session_id = await subject.open()
    first = await subject.step(session_id, 0, _WAIT)
    require(first.result.status == env_pb2.ACTION_STATUS_OK, f"{_WAIT} was not OK: {first.result.message}")
    require(await subject.step(session_id, 0, _WAIT) == first, "the same step again gave another answer")
    other = subject.step(session_id, 0, 'do(action="Scroll Down")')
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "STEP_CONFLICT")
    await refused(subject.step(session_id, 5, _WAIT), grpc.StatusCode.FAILED_PRECONDITION, "STEP_OUT_OF_ORDER")


async def _what_is_no_action_is_rejected_and_counts(subject: Subject) -> None:
    session_id = await subject.open()
    cases = {
        "click it": env_pb2.ACTION_REASON_MALFORMED,
        '__import__("os").getpid()': env_pb2.ACTION_REASON_MALFORMED,
        'do(action="Fly")': env_pb2.ACTION_REASON_UNKNOWN_ACTION,
        'do(action="Click")': env_pb2.ACTION_REASON_BAD_ARGUMENT,
        'do(action="Click", element="99999")': env_pb2.ACTION_REASON_UNKNOWN_ELEMENT,
        'do(action="Goto", argument="http://example.com/")': env_pb2.ACTION_REASON_NOT_ALLOWED,
        'exit(message="' + "x" * 65_536 + '")': env_pb2.ACTION_REASON_TOO_LONG,
    }
    for index, (text, reason) in enumerate(cases.items()):
        answer = await subject.step(session_id, index, text)
        require(answer.result.status == env_pb2.ACTION_STATUS_REJECTED, f"{text[:60]} was not REJECTED")
        require(answer.result.reason == reason, f"{text[:60]}: {env_pb2.ActionReason.Name(answer.result.reason)}")
        require(bool(answer.result.message), f"{text[:60]} was rejected without a word")
        require(not answer.terminated, f"{text[:60]} ended the episode")


async def _exit_ends_the_episode_and_leaves_it_readable(subject: Subject) -> None:
    session_id = await subject.open()
    answer = await subject.step(session_id, 0, 'exit(message="done")')
    require(answer.terminated, "exit did not terminate")
    require(answer.result.action.exit.message == "done", "the answer was not given back")
    await refused(subject.step(session_id, 1, _WAIT), grpc.StatusCode.FAILED_PRECONDITION, "EPISODE_OVER")
    seen = await subject.stub.Observe(env_pb2.ObserveRequest(session_id=session_id), timeout=_TIMEOUT)
    require(seen.session.state == env_pb2.SESSION_STATE_OVER, "the session is not OVER")


async def _sessions_are_listed_renewed_and_closed(subject: Subject) -> None:
    session_id = await subject.open()
    listed = await subject.stub.ListSessions(env_pb2.ListSessionsRequest(), timeout=_TIMEOUT)
    require(any(each.session_id == session_id for each in listed.sessions), "an open session is not listed")
    renewed = await subject.stub.RenewLease(env_pb2.RenewLeaseRequest(session_id=session_id), timeout=_TIMEOUT)
    lease, end = renewed.session.lease_expires_at.ToDatetime(), renewed.session.expires_at.ToDatetime()
    require(lease <= end, "the lease goes beyond the lifetime")
    request = env_pb2.CloseSessionRequest(session_id=session_id)
    require((await subject.stub.CloseSession(request, timeout=_TIMEOUT)).existed, "the session did not exist")
    require(not (await subject.stub.CloseSession(request, timeout=_TIMEOUT)).existed, "a closed session exists")
    await refused(subject.step(session_id, 0, _WAIT), grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def _what_it_can_do_is_told(subject: Subject) -> None:
    told = await subject.stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=_TIMEOUT)
    require(subject.task.suite in told.suites, "the suite is not among the capabilities")
    require(env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML in told.observations, "simplified HTML is not observed")
    require(told.capacity > 0, "the capacity is 0")


CHECKS: tuple[Callable[[Subject], Awaitable[None]], ...] = (
    _what_it_can_do_is_told,
    _tasks_are_listed_by_suite,
    _a_session_opens_with_its_page,
    _opening_again_gives_the_same_session,
    _the_same_seed_gives_the_same_page,
    _bad_requests_are_refused,
    _a_step_is_taken_once,
    _what_is_no_action_is_rejected_and_counts,
    _exit_ends_the_episode_and_leaves_it_readable,
    _sessions_are_listed_renewed_and_closed,
)


def _say(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


async def run(target: str, task: str) -> dict[str, str]:
    """Runs all checks; what failed, by name of the check."""
    suite, _, task_id = task.partition("/")
    failures: dict[str, str] = {}
    async with open_channel(target) as channel:
        subject = Subject(env_pb2_grpc.EnvironmentServiceStub(channel), env_pb2.TaskRef(suite=suite, task_id=task_id))
        for check in CHECKS:
            name = check.__name__.strip("_").replace("_", " ")
            try:
                await check(subject)
            except FailedError as error:
                failures[name] = str(error)
            except grpc.aio.AioRpcError as error:
                failures[name] = f"{error.code().name}: {error.details()}"
            finally:
                await subject.close()
            _say(f"{'FAILED' if name in failures else 'ok    '}  {name}  {failures.get(name, '')}")
    return failures


def main() -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(
        prog="webagent-env-conformance", description="checks an implementation of webagent.env.v1"
    )
    parser.add_argument("--target", required=True, help="its address, host:port")
    parser.add_argument("--task", default="miniwob/click-button", help="a task of it, suite/task")
    given = parser.parse_args()
    failures = asyncio.run(run(given.target, given.task))
    _say(f"{len(CHECKS) - len(failures)} of {len(CHECKS)} promises kept")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
