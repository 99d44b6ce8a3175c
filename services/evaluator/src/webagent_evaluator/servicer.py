"""The evaluator's RPCs: messages in, the judge and the statistics, messages out."""

from __future__ import annotations

from importlib.metadata import version

import grpc
import structlog
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.errors import ServiceError
from webagent_runtime.server import time_left

from webagent_evaluator import convert
from webagent_evaluator.judge import JudgeError, check_native, collect_native
from webagent_evaluator.sessions import Sessions
from webagent_evaluator.statistics import (
    ResultsError,
    check_distinct,
    over_attempts,
    paired_difference,
    rate_of,
    rates_by_site,
)

VERSION = version("webagent-evaluator")
SHARE_FOR_READING = 0.9
"""Of the caller's time: the rest is for telling it that the session could not be read within it."""

log = structlog.get_logger()


class EvaluatorServicer(evaluator_pb2_grpc.EvaluatorServiceServicer):
    """Judges episodes and summarizes verdicts."""

    def __init__(self, sessions: Sessions, timeout: float) -> None:
        self._sessions = sessions
        self._timeout = timeout

    async def Evaluate(
        self, request: pb.EvaluateRequest, context: grpc.aio.ServicerContext[pb.EvaluateRequest, pb.EvaluateResponse]
    ) -> pb.EvaluateResponse:
        """Judges an ended episode by its task's rule."""
        convert.check_evaluate(request)
        verdict = _new_verdict(request.answer if request.HasField("answer") else None)
        timeout = time_left(context, self._timeout) * SHARE_FOR_READING
        try:
            async with self._sessions.session(request.session_address, request.session_id, timeout) as session:
                verdict.rule.CopyFrom(await session.rule())
                rule = convert.native_rule(verdict.rule)
                evidence = await collect_native(rule, session.read_javascript)
            convert.set_check(verdict, check_native(rule, evidence))
        except JudgeError as fault:
            convert.set_fault(verdict, fault)
            log.warning("no verdict", session=request.session_id, reason=fault.reason, message=str(fault))
        return pb.EvaluateResponse(verdict=verdict)

    async def Rescore(
        self, request: pb.RescoreRequest, context: grpc.aio.ServicerContext[pb.RescoreRequest, pb.RescoreResponse]
    ) -> pb.RescoreResponse:
        """Judges again from a verdict's own evidence."""
        given = request.verdict
        if not given.HasField("rule") or not given.checks:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION, "NO_EVIDENCE", "the verdict holds no rule or no evidence"
            )
        verdict = _new_verdict(given.answer if given.HasField("answer") else None)
        verdict.rule.CopyFrom(given.rule)
        try:
            rule = convert.native_rule(given.rule)
            for check in given.checks:
                convert.set_check(verdict, check_native(rule, check.evidence_json))
        except JudgeError as fault:
            raise convert.invalid_request(str(fault)) from fault
        return pb.RescoreResponse(verdict=verdict, changed=verdict.outcome != given.outcome)

    async def Summarize(
        self,
        request: pb.SummarizeRequest,
        context: grpc.aio.ServicerContext[pb.SummarizeRequest, pb.SummarizeResponse],
    ) -> pb.SummarizeResponse:
        """Success rates, repeated attempts and the difference to another run."""
        results, baseline = convert.episodes(request.results), convert.episodes(request.baseline)
        response = pb.SummarizeResponse(overall=convert.rate(rate_of(results)))
        for site, rate in rates_by_site(results).items():
            response.sites.add(site=site, rate=convert.rate(rate))
        try:
            check_distinct(results)
            check_distinct(baseline)
            if request.k:
                attempts = over_attempts(results, request.k)
                if attempts.pass_at_k is not None:
                    response.pass_at_k = attempts.pass_at_k
                if attempts.mean_at_k is not None:
                    response.mean_at_k = attempts.mean_at_k
        except ResultsError as error:
            raise convert.invalid_request(str(error)) from error
        if baseline:
            response.difference.CopyFrom(convert.difference(paired_difference(results, baseline)))
        return response


def _new_verdict(answer: str | None) -> pb.Verdict:
    verdict = pb.Verdict(evaluator_version=VERSION, answer=answer)
    verdict.judged_at.GetCurrentTime()
    return verdict
