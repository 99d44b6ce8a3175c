"""The evaluator's RPCs: messages in, the dialects and the statistics, messages out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib.metadata import version

import grpc
import structlog
from webagent.env.v1 import probe_pb2
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.errors import ServiceError
from webagent_runtime.server import time_left

from webagent_evaluator import convert
from webagent_evaluator.config import WebArenaConfig
from webagent_evaluator.dialects import WebArenaRule
from webagent_evaluator.evidence import Evidence, RecordedJudge, StoredPages
from webagent_evaluator.judge import Judge
from webagent_evaluator.live import LivePages
from webagent_evaluator.locators import Account
from webagent_evaluator.native import NativeRule, check_native, collect_native
from webagent_evaluator.sessions import Session, Sessions
from webagent_evaluator.statistics import ResultsError, summarize
from webagent_evaluator.storage import restore, store
from webagent_evaluator.verdicts import Check, NoVerdictError
from webagent_evaluator.webarena import judge_webarena

VERSION = version("webagent-evaluator")
SHARE_FOR_READING, SHARE_FOR_ASKING, SHARE_FOR_JUDGING = 0.9, 0.93, 0.95
"""Of the caller's time, by when each has ended: the rest is for telling it that the verdict could not be reached."""

log = structlog.get_logger()


class EvaluatorServicer(evaluator_pb2_grpc.EvaluatorServiceServicer):
    """Judges episodes and summarizes verdicts."""

    def __init__(self, sessions: Sessions, judge: Judge, config: WebArenaConfig, timeout: float) -> None:
        self._sessions = sessions
        self._judge = judge
        self._config = config
        self._account = Account(config.shop_username, config.shop_password)
        self._timeout = timeout

    async def Evaluate(
        self, request: pb.EvaluateRequest, context: grpc.aio.ServicerContext[pb.EvaluateRequest, pb.EvaluateResponse]
    ) -> pb.EvaluateResponse:
        """Judges an ended episode by its task's rule."""
        convert.check_evaluate(request)
        verdict = _new_verdict(request.answer if request.HasField("answer") else None)
        timeout = time_left(context, self._timeout)
        reading = timeout * SHARE_FOR_READING
        evidence = Evidence()
        judge = self._recorded_judge(evidence, timeout)
        try:
            async with (
                asyncio.timeout(timeout * SHARE_FOR_JUDGING),
                self._sessions.session(request.session_address, request.session_id, reading) as session,
            ):
                verdict.rule.CopyFrom(self._configured(await session.rule()))
                convert.set_checks(verdict, await self._check(verdict, session, judge, evidence))
        except TimeoutError:
            convert.set_fault(verdict, NoVerdictError("EVALUATION_TIMEOUT", "the caller's time was up"))
        except NoVerdictError as fault:
            convert.set_fault(verdict, fault)
            log.warning("no verdict", session=request.session_id, reason=fault.reason, message=str(fault))
        if verdict.rule.HasField("webarena"):
            verdict.evidence.CopyFrom(store(evidence))
        return pb.EvaluateResponse(verdict=verdict)

    async def Rescore(
        self, request: pb.RescoreRequest, context: grpc.aio.ServicerContext[pb.RescoreRequest, pb.RescoreResponse]
    ) -> pb.RescoreResponse:
        """Judges again from a verdict's own evidence."""
        given = request.verdict
        if not given.HasField("rule"):
            raise _no_evidence("the verdict holds no rule")
        verdict = _new_verdict(given.answer if given.HasField("answer") else None)
        verdict.rule.CopyFrom(given.rule)
        convert.rewrite(verdict.rule, request)
        try:
            rule = convert.rule_of(verdict.rule)
            if isinstance(rule, WebArenaRule):
                await self._rescore_webarena(verdict, rule, restore(given.evidence), time_left(context, self._timeout))
            else:
                _rescore_native(verdict, rule, given)
        except NoVerdictError as fault:
            raise convert.invalid_request(str(fault)) from fault
        return pb.RescoreResponse(verdict=verdict, changed=verdict.outcome != given.outcome)

    async def Summarize(
        self,
        request: pb.SummarizeRequest,
        context: grpc.aio.ServicerContext[pb.SummarizeRequest, pb.SummarizeResponse],
    ) -> pb.SummarizeResponse:
        """Success rates, repeated attempts and the difference to another run."""
        results, baseline = convert.episodes(request.results), convert.episodes(request.baseline)
        try:
            return convert.summary(summarize(results, baseline, k=request.k, expected=dict(request.expected_tasks)))
        except ResultsError as error:
            raise convert.invalid_request(str(error)) from error

    def _recorded_judge(self, evidence: Evidence, timeout: float) -> RecordedJudge:
        """A judge that gives up before the caller does, so that it is the judge whom the verdict names."""
        deadline = asyncio.get_running_loop().time() + timeout * SHARE_FOR_ASKING
        return RecordedJudge(evidence, self._judge, deadline)

    def _configured(self, rule: probe_pb2.TaskRule) -> probe_pb2.TaskRule:
        """The rule as it is applied here: the config may be stricter, or more lenient, than the suite."""
        if rule.HasField("webarena"):
            rule.webarena.strict |= self._config.strict
            rule.webarena.unanswered_is_na |= self._config.unanswered_is_na
        return rule

    async def _check(
        self, verdict: pb.Verdict, session: Session, judge: RecordedJudge, evidence: Evidence
    ) -> list[Check]:
        rule = convert.rule_of(verdict.rule)
        if isinstance(rule, NativeRule):
            return [check_native(rule, await collect_native(rule, session.read_in_place))]
        pages = LivePages(session, rule.site_urls, self._account, evidence)
        with suppress(NoVerdictError):
            # Kept for other dialects. A rule that needs it meets the fault again; one about the answer alone does not.
            await pages.final_url()
        answer = verdict.answer if verdict.HasField("answer") else None
        return await judge_webarena(rule, answer, pages, judge)

    async def _rescore_webarena(
        self, verdict: pb.Verdict, rule: WebArenaRule, evidence: Evidence, timeout: float
    ) -> None:
        answer = verdict.answer if verdict.HasField("answer") else None
        judge = self._recorded_judge(evidence, timeout)
        try:
            async with asyncio.timeout(timeout * SHARE_FOR_JUDGING):
                convert.set_checks(verdict, await judge_webarena(rule, answer, StoredPages(evidence), judge))
        except TimeoutError:
            convert.set_fault(verdict, NoVerdictError("EVALUATION_TIMEOUT", "the caller's time was up"))
        except NoVerdictError as fault:
            if fault.reason == "NO_EVIDENCE":
                raise _no_evidence(str(fault)) from fault
            convert.set_fault(verdict, fault)
        verdict.evidence.CopyFrom(store(evidence))


def _rescore_native(verdict: pb.Verdict, rule: NativeRule, given: pb.Verdict) -> None:
    if not given.checks:
        raise _no_evidence("the verdict holds no evidence")
    convert.set_checks(verdict, [check_native(rule, check.evidence_json) for check in given.checks])


def _no_evidence(message: str) -> ServiceError:
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "NO_EVIDENCE", message)


def _new_verdict(answer: str | None) -> pb.Verdict:
    verdict = pb.Verdict(evaluator_version=VERSION, answer=answer)
    verdict.judged_at.GetCurrentTime()
    return verdict
