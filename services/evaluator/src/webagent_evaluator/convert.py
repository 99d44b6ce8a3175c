"""Between the contract's messages and the domain's values; refuses messages that break the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable

import grpc
from webagent.env.v1 import probe_pb2
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent_runtime.errors import ServiceError

from webagent_evaluator.dialects import Dialect, Manner, WebArenaRule
from webagent_evaluator.native import NativeRule
from webagent_evaluator.statistics import Attempts, Cell, Difference, Episode, Outcome, Rate, Summary
from webagent_evaluator.verdicts import Check, NoVerdictError

MAX_ANSWER_BYTES = 65_536
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OUTCOMES = {
    pb.OUTCOME_SUCCESS: Outcome.SUCCESS,
    pb.OUTCOME_FAILURE: Outcome.FAILURE,
    pb.OUTCOME_INVALID: Outcome.INVALID,
}
_DIALECTS = {
    probe_pb2.WEB_ARENA_DIALECT_UPSTREAM: Dialect.UPSTREAM,
    probe_pb2.WEB_ARENA_DIALECT_VAB_LITE: Dialect.VAB_LITE,
    probe_pb2.WEB_ARENA_DIALECT_VERIFIED: Dialect.VERIFIED,
}


def invalid_request(message: str) -> ServiceError:
    """The error for a request that breaks the contract."""
    return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", message)


def check_evaluate(request: pb.EvaluateRequest) -> None:
    """Refuses a request that cannot name a session."""
    if not _ADDRESS.fullmatch(request.session_address):
        raise invalid_request("session_address must be host:port")
    if not _SESSION_ID.fullmatch(request.session_id):
        raise invalid_request("session_id must be 1 to 128 characters of [A-Za-z0-9._-]")
    if len(request.answer.encode()) > MAX_ANSWER_BYTES:
        raise invalid_request(f"answer is longer than {MAX_ANSWER_BYTES} bytes")


def rule_of(rule: probe_pb2.TaskRule) -> NativeRule | WebArenaRule:
    """The rule; one of a dialect that this version does not know gives no verdict."""
    match rule.WhichOneof("dialect"):
        case "native":
            return NativeRule(rule.native.reward_javascript, rule.native.success_threshold)
        case "webarena" if rule.webarena.dialect in _DIALECTS:
            given = rule.webarena
            manner = Manner(_DIALECTS[given.dialect], given.strict)
            return WebArenaRule(manner, given.eval_json, given.intent, dict(given.site_urls), given.unanswered_is_na)
    raise NoVerdictError("RULE_UNSUPPORTED", "the task's rule is of a dialect that this evaluator does not know")


def rewrite(rule: probe_pb2.TaskRule, request: pb.RescoreRequest) -> None:
    """Puts into a rule how the request wants it read."""
    changes = [name for name in ("dialect", "strict", "unanswered_is_na") if request.HasField(name)]
    if changes and rule.WhichOneof("dialect") != "webarena":
        raise invalid_request(f"{changes[0]} is for WebArena's rules, and the verdict's is none")
    if request.HasField("dialect"):
        rule.webarena.dialect = request.dialect
    if request.HasField("strict"):
        rule.webarena.strict = request.strict
    if request.HasField("unanswered_is_na"):
        rule.webarena.unanswered_is_na = request.unanswered_is_na


def set_checks(verdict: pb.Verdict, checks: Iterable[Check]) -> None:
    """Writes decisions into a verdict."""
    for check in checks:
        verdict.checks.add(
            kind=check.kind, passed=check.passed, evidence_json=check.evidence_json, explanation=check.explanation
        )
    passed = all(one.passed for one in verdict.checks)
    verdict.outcome = pb.OUTCOME_SUCCESS if passed else pb.OUTCOME_FAILURE


def set_fault(verdict: pb.Verdict, fault: NoVerdictError) -> None:
    """Writes into a verdict why there is none."""
    verdict.outcome = pb.OUTCOME_INVALID
    verdict.reason = fault.reason
    verdict.detail = str(fault)


def episodes(results: Iterable[pb.EpisodeResult]) -> list[Episode]:
    """Results as episodes."""
    return [_episode(result) for result in results]


def rate(value: Rate) -> pb.Rate:
    """A rate as a message."""
    low, high = value.interval or (None, None)
    return pb.Rate(
        successes=value.successes,
        scored=value.scored,
        invalid=value.invalid,
        rate=value.rate,
        low=low,
        high=high,
    )


def summary(value: Summary) -> pb.SummarizeResponse:
    """A summary as a message."""
    response = pb.SummarizeResponse(
        overall=rate(value.overall), complete=not value.missing, missing_tasks=value.missing
    )
    for row in value.sites:
        site = response.sites.add(site=row.site, rate=rate(row.rate), tasks=row.tasks, missing_tasks=row.missing)
        _set_attempts(site, row.attempts)
    _set_attempts(response, value.attempts)
    if value.difference is not None:
        response.difference.CopyFrom(_difference(value.difference))
    return response


def _set_attempts(message: pb.SummarizeResponse | pb.SiteRate, attempts: Attempts) -> None:
    if attempts.pass_at_k is not None:
        message.pass_at_k = attempts.pass_at_k
    if attempts.mean_at_k is not None:
        message.mean_at_k = attempts.mean_at_k


def _difference(value: Difference) -> pb.PairedDifference:
    return pb.PairedDifference(
        pairs=value.pairs,
        mean=value.mean,
        low=value.low,
        high=value.high,
        better=value.better,
        worse=value.worse,
        p_value=value.p_value,
    )


def _episode(result: pb.EpisodeResult) -> Episode:
    if not (result.task.suite and result.task.task_id):
        raise invalid_request("every result needs task.suite and task.task_id")
    if result.outcome not in _OUTCOMES:
        raise invalid_request(f"the result of {result.task.suite}/{result.task.task_id} has no known outcome")
    return Episode(
        cell=Cell(result.task.suite, result.task.task_id, result.seed),
        attempt=result.attempt,
        site=result.site or result.task.task_id,
        outcome=_OUTCOMES[result.outcome],
    )
