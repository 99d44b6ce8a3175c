"""The evaluator as a process: refuses what breaks the contract, answers INVALID for what cannot be judged."""

from __future__ import annotations

import json

import grpc
import pytest
from webagent.env.v1 import probe_pb2
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.errors import from_rpc
from webagent_runtime.testing import free_port

TIMEOUT = 20


def verdict(outcome: pb.Outcome, value: object, *, threshold: float = 0.5) -> pb.Verdict:
    rule = probe_pb2.TaskRule(native=probe_pb2.NativeRule(reward_javascript="r()", success_threshold=threshold))
    evidence = json.dumps({"value": value, "url": "http://site.test/"})
    return pb.Verdict(outcome=outcome, rule=rule, checks=[pb.Check(kind="native", evidence_json=evidence)], answer="7")


def results(outcomes: list[pb.Outcome], task_id: str = "click-button") -> list[pb.EpisodeResult]:
    task = {"suite": "miniwob", "task_id": task_id}
    return [pb.EpisodeResult(task=task, seed=seed, outcome=outcome) for seed, outcome in enumerate(outcomes)]


async def test_an_environment_that_is_not_there_makes_the_verdict_invalid(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub,
) -> None:
    request = pb.EvaluateRequest(session_address=f"127.0.0.1:{free_port()}", session_id="s", answer="7")
    got = (await evaluator.Evaluate(request, timeout=TIMEOUT)).verdict
    assert (got.outcome, got.reason, got.answer) == (pb.OUTCOME_INVALID, "ENV_UNREACHABLE", "7")
    assert not got.checks
    assert got.evaluator_version


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (pb.EvaluateRequest(session_address="nowhere", session_id="s"), "session_address must be host:port"),
        (pb.EvaluateRequest(session_address="127.0.0.1:1", session_id="a/b"), "session_id must be"),
        (pb.EvaluateRequest(session_address="127.0.0.1:1", session_id="s", answer="x" * 70_000), "answer is longer"),
    ],
)
async def test_a_request_that_names_no_session_is_refused(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, request_: pb.EvaluateRequest, message: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await evaluator.Evaluate(request_, timeout=TIMEOUT)
    assert from_rpc(error.value).reason == "INVALID_REQUEST"
    assert message in from_rpc(error.value).message


async def test_a_verdict_is_judged_again_from_its_own_evidence(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub,
) -> None:
    given = verdict(pb.OUTCOME_SUCCESS, {"done": True, "reward": 0.4})
    response = await evaluator.Rescore(pb.RescoreRequest(verdict=given), timeout=TIMEOUT)
    assert (response.verdict.outcome, response.changed) == (pb.OUTCOME_FAILURE, True)
    assert (response.verdict.rule, response.verdict.answer) == (given.rule, "7")
    again = await evaluator.Rescore(pb.RescoreRequest(verdict=response.verdict), timeout=TIMEOUT)
    assert not again.changed


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (pb.Verdict(outcome=pb.OUTCOME_INVALID, reason="SESSION_NOT_FOUND"), "NO_EVIDENCE"),
        (verdict(pb.OUTCOME_SUCCESS, "no reward"), "INVALID_REQUEST"),
    ],
)
async def test_a_verdict_without_readable_evidence_is_not_judged_again(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, given: pb.Verdict, reason: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await evaluator.Rescore(pb.RescoreRequest(verdict=given), timeout=TIMEOUT)
    assert from_rpc(error.value).reason == reason


async def test_results_are_summarized_by_site_against_a_baseline(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub,
) -> None:
    s, f, i = pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE, pb.OUTCOME_INVALID
    request = pb.SummarizeRequest(results=results([s, s, s, i]), baseline=results([s, f, f, f]), k=1)
    request.results.extend(results([f], task_id="use-slider"))
    request.results.extend(results([i], task_id="use-spinner"))
    summary = await evaluator.Summarize(request, timeout=TIMEOUT)
    assert (summary.overall.successes, summary.overall.scored, summary.overall.invalid) == (3, 4, 2)
    assert [(site.site, site.missing_tasks) for site in summary.sites] == [
        ("click-button", 0),
        ("use-slider", 0),
        ("use-spinner", 1),
    ]
    assert (summary.complete, summary.missing_tasks) == (False, 1)
    assert (summary.difference.better, summary.difference.worse) == (2, 0)
    assert (summary.difference.pairs, summary.difference.mean) == (3, pytest.approx(2 / 3))
    assert summary.pass_at_k == summary.mean_at_k == pytest.approx(3 / 4)


async def test_no_results_have_no_rate(evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub) -> None:
    summary = await evaluator.Summarize(pb.SummarizeRequest(results=results([pb.OUTCOME_INVALID])), timeout=TIMEOUT)
    assert not summary.overall.HasField("rate")
    assert not summary.HasField("difference")
    assert not summary.HasField("pass_at_k")


@pytest.mark.parametrize(
    "request_",
    [
        pb.SummarizeRequest(results=results([pb.OUTCOME_UNSPECIFIED])),
        pb.SummarizeRequest(results=[pb.EpisodeResult(outcome=pb.OUTCOME_SUCCESS)]),
        pb.SummarizeRequest(results=results([pb.OUTCOME_SUCCESS]) * 2),
        pb.SummarizeRequest(results=results([pb.OUTCOME_SUCCESS]), k=2),
    ],
)
async def test_results_that_cannot_be_summarized_are_refused(
    evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, request_: pb.SummarizeRequest
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await evaluator.Summarize(request_, timeout=TIMEOUT)
    assert from_rpc(error.value).reason == "INVALID_REQUEST"
