"""Between the contract's messages and the domain's values; refuses messages that break the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable

import grpc
from webagent.env.v1 import probe_pb2
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent_runtime.errors import ServiceError

from webagent_evaluator.judge import Check, JudgeError, NativeRule
from webagent_evaluator.statistics import Cell, Difference, Episode, Outcome, Rate

MAX_ANSWER_BYTES = 65_536
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OUTCOMES = {
    pb.OUTCOME_SUCCESS: Outcome.SUCCESS,
    pb.OUTCOME_FAILURE: Outcome.FAILURE,
    pb.OUTCOME_INVALID: Outcome.INVALID,
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


def native_rule(rule: probe_pb2.TaskRule) -> NativeRule:
    """The rule's dialect; one that this version does not know is a fault of the judge."""
    if rule.WhichOneof("dialect") != "native":
        raise JudgeError("RULE_UNSUPPORTED", "the task's rule is of a dialect that this evaluator does not know")
    return NativeRule(rule.native.reward_javascript, rule.native.success_threshold)


def set_check(verdict: pb.Verdict, check: Check) -> None:
    """Writes a decision into a verdict."""
    verdict.checks.add(
        kind=check.kind, passed=check.passed, evidence_json=check.evidence_json, explanation=check.explanation
    )
    passed = all(one.passed for one in verdict.checks)
    verdict.outcome = pb.OUTCOME_SUCCESS if passed else pb.OUTCOME_FAILURE


def set_fault(verdict: pb.Verdict, fault: JudgeError) -> None:
    """Writes into a verdict why there is none."""
    verdict.outcome = pb.OUTCOME_INVALID
    verdict.reason = fault.reason


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


def difference(value: Difference) -> pb.PairedDifference:
    """A paired difference as a message."""
    return pb.PairedDifference(pairs=value.pairs, mean=value.mean, low=value.low, high=value.high)


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
