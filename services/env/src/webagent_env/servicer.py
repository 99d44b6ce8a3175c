"""EnvironmentService: converts, calls the pool, converts back."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from webagent.env.v1 import env_pb2, env_pb2_grpc

from webagent_env import convert, errors
from webagent_env.action_messages import input_of
from webagent_env.config import SessionsConfig
from webagent_env.pool import SessionPool
from webagent_env.tasks import Suite, Task

VERSION = version("webagent-env")


class EnvironmentServicer(env_pb2_grpc.EnvironmentServiceServicer):
    """Sessions, over gRPC. `address` gives this replica's own, once it is known."""

    def __init__(self, pool: SessionPool, limits: SessionsConfig, address: Callable[[], str]) -> None:
        self._pool = pool
        self._limits = limits
        self._address = address

    async def ListTasks(self, request: env_pb2.ListTasksRequest, _: Any) -> env_pb2.ListTasksResponse:
        """Lists the tasks of one suite or of all."""
        suites = [self._suite(request.suite)] if request.suite else list(self._pool.suites.values())
        return env_pb2.ListTasksResponse(tasks=[convert.task_info(task) for suite in suites for task in suite.tasks()])

    async def CreateSession(self, request: env_pb2.CreateSessionRequest, _: Any) -> env_pb2.CreateSessionResponse:
        """Opens a session, or returns the one that an equal request has opened."""
        suite = self._suite(request.task.suite)
        spec = convert.spec_of(request, self._task(suite, request.task.task_id), suite, self._limits)
        session = await self._pool.create(spec)
        return env_pb2.CreateSessionResponse(
            session=convert.session_info(session, self._address()),
            instruction=session.instruction,
            observation=convert.observation_message(session.observation),
        )

    async def Step(self, request: env_pb2.StepRequest, _: Any) -> env_pb2.StepResponse:
        """Takes one action."""
        parsed, text = input_of(request)
        session = self._pool.get(request.session_id)
        with session:
            return convert.step_response(await session.step(request.step_index, parsed, text))

    async def Observe(self, request: env_pb2.ObserveRequest, _: Any) -> env_pb2.ObserveResponse:
        """Reads the page as it is now."""
        session = self._pool.get(request.session_id)
        with session:
            observation = await session.observe(convert.kinds_of(request.observations))
        return env_pb2.ObserveResponse(
            session=convert.session_info(session, self._address()),
            observation=convert.observation_message(observation),
        )

    async def RenewLease(self, request: env_pb2.RenewLeaseRequest, _: Any) -> env_pb2.RenewLeaseResponse:
        """Pushes the lease's end into the future."""
        session = self._pool.get(request.session_id)
        return env_pb2.RenewLeaseResponse(session=convert.session_info(session, self._address()))

    async def CloseSession(self, request: env_pb2.CloseSessionRequest, _: Any) -> env_pb2.CloseSessionResponse:
        """Closes the session and everything that belongs to it."""
        return env_pb2.CloseSessionResponse(existed=await self._pool.close(request.session_id))

    async def ListSessions(self, _request: env_pb2.ListSessionsRequest, _: Any) -> env_pb2.ListSessionsResponse:
        """Lists the open sessions, oldest first."""
        sessions = self._pool.sessions()
        return env_pb2.ListSessionsResponse(
            sessions=[convert.session_info(session, self._address()) for session in sessions]
        )

    async def GetCapabilities(
        self, _request: env_pb2.GetCapabilitiesRequest, _: Any
    ) -> env_pb2.GetCapabilitiesResponse:
        """Says what this replica can do and how full it is."""
        return env_pb2.GetCapabilitiesResponse(
            suites=sorted(self._pool.suites),
            observations=convert.all_kinds(),
            capacity=self._pool.capacity,
            sessions=len(self._pool.sessions()),
            browser=f"chromium {self._pool.browser.version}",
            service_version=VERSION,
        )

    def _suite(self, name: str) -> Suite:
        suite = self._pool.suites.get(name)
        if suite is None:
            raise errors.suite_not_found(name, sorted(self._pool.suites))
        return suite

    def _task(self, suite: Suite, task_id: str) -> Task:
        tasks = {task.task_id: task for task in suite.tasks()}
        if task_id not in tasks:
            nearest = difflib.get_close_matches(task_id, tasks, n=1, cutoff=0.0)[0]
            raise errors.task_not_found(suite.name, task_id, nearest)
        return tasks[task_id]
