"""ProbeService: the evaluator's view of a session. Its scope is its own, because agents must not have it."""

from __future__ import annotations

from typing import Any

import grpc.aio
from webagent.env.v1 import probe_pb2, probe_pb2_grpc
from webagent_runtime.server import time_left

from webagent_env import convert, errors
from webagent_env.pool import SessionPool
from webagent_env.probe import Query, probe


class ProbeServicer(probe_pb2_grpc.ProbeServiceServicer):
    """Reads sessions, over gRPC."""

    def __init__(self, pool: SessionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout

    async def Probe(
        self, request: probe_pb2.ProbeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> probe_pb2.ProbeResponse:
        """Reads one value from the agent's page or from another address."""
        match request.WhichOneof("query"):
            case "javascript":
                query = Query(request.url, javascript=request.javascript)
            case "selector":
                query = Query(request.url, selector=request.selector)
            case "html":
                query = Query(request.url, html=True)
            case _:
                raise errors.invalid_request("a probe needs javascript, selector or html")
        session = self._pool.get(request.session_id)
        with session:
            value, url = await probe(session, query, time_left(context, self._timeout))
        return probe_pb2.ProbeResponse(value_json=value, url=url)

    async def GetTaskRule(self, request: probe_pb2.GetTaskRuleRequest, _: Any) -> probe_pb2.GetTaskRuleResponse:
        """Returns the rule by which the session's task is judged."""
        spec = self._pool.get(request.session_id).spec
        rule = self._pool.suites[spec.task.suite].rule(spec.task, spec.seed)
        return probe_pb2.GetTaskRuleResponse(rule=convert.rule_message(spec.task, spec.seed, rule))
