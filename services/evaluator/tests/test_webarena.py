"""A WebArena episode in a real browser, judged by the service: evidence, judges, silent agents, and judging again.

The rule comes from the test and everything else from env: its probe is asked through a service that adds the rule.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
import pytest
from webagent.env.v1 import probe_pb2, probe_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent.inference.v1 import inference_pb2 as inference
from webagent.inference.v1 import inference_pb2_grpc
from webagent_evaluator import judges
from webagent_evaluator.config import JudgeConfig, WebArenaConfig
from webagent_evaluator.evidence import Evidence, RecordedJudge
from webagent_evaluator.judge import Exchange, Judge, Kind, NoJudge, Question
from webagent_evaluator.servicer import EvaluatorServicer
from webagent_evaluator.sessions import Sessions
from webagent_evaluator.verdicts import NoVerdictError
from webagent_runtime import chat
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig, ServerConfig
from webagent_runtime.errors import ServiceError, from_rpc
from webagent_runtime.server import Server
from webagent_runtime.testing import free_port

TIMEOUT = 60
UPSTREAM, LITE = probe_pb2.WEB_ARENA_DIALECT_UPSTREAM, probe_pb2.WEB_ARENA_DIALECT_VAB_LITE
Evaluate = Callable[..., Awaitable[pb.Verdict]]


def rule(eval_: dict[str, Any], dialect: probe_pb2.WebArenaDialect = LITE) -> probe_pb2.WebArenaRule:
    return probe_pb2.WebArenaRule(dialect=dialect, eval_json=json.dumps(eval_), intent="Find the best-selling item")


def answers(**references: object) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": references, "string_note": "There is no such item"}


def contents(url: str, locator: str, **required: object) -> dict[str, Any]:
    target = {"url": url, "locator": locator, "required_contents": required}
    return {"eval_types": ["program_html"], "program_html": [target]}


class Probes(probe_pb2_grpc.ProbeServiceServicer):
    """Env's probes, with the rules of the test."""

    def __init__(self, env: probe_pb2_grpc.ProbeServiceAsyncStub) -> None:
        self._env = env
        self.rule = probe_pb2.WebArenaRule()
        self.crashed = False

    async def GetTaskRule(self, request: probe_pb2.GetTaskRuleRequest, _: Any) -> probe_pb2.GetTaskRuleResponse:
        return probe_pb2.GetTaskRuleResponse(rule=probe_pb2.TaskRule(webarena=self.rule))

    async def Probe(self, request: probe_pb2.ProbeRequest, _: Any) -> probe_pb2.ProbeResponse:
        if self.crashed:
            raise ServiceError(grpc.StatusCode.ABORTED, "BROWSER_CRASHED", "the browser crashed")
        try:
            return await self._env.Probe(request, timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


class Bench:
    """An evaluator before a browser session whose rule the test sets."""

    def __init__(
        self, stub: evaluator_pb2_grpc.EvaluatorServiceAsyncStub, probes: Probes, address: str, session_id: str
    ) -> None:
        self.stub = stub
        self.probes = probes
        self._where = (address, session_id)

    async def evaluate(self, task_rule: probe_pb2.WebArenaRule, answer: str | None = None) -> pb.Verdict:
        self.probes.rule = task_rule
        address, session_id = self._where
        request = pb.EvaluateRequest(session_address=address, session_id=session_id, answer=answer)
        return (await self.stub.Evaluate(request, timeout=TIMEOUT)).verdict

    async def rescore(self, verdict: pb.Verdict, **changes: Any) -> pb.RescoreResponse:
        return await self.stub.Rescore(pb.RescoreRequest(verdict=verdict, **changes), timeout=TIMEOUT)


BenchOf = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def bench_of(where: tuple[str, str]) -> AsyncIterator[BenchOf]:
    """Makes a bench with a judge and a config."""
    env, session_id = where
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(open_channel(env))

        async def make(
            judge: Judge | None = None, config: WebArenaConfig | None = None, seconds: float = TIMEOUT
        ) -> Bench:
            sessions = Sessions(ClientConfig(), limit=4)
            probes = Probes(probe_pb2_grpc.ProbeServiceStub(channel))
            servicer = EvaluatorServicer(sessions, judge or NoJudge(), config or WebArenaConfig(), seconds)
            server = Server(ServerConfig(port=0), name="evaluator", version="test")
            server.add(probe_pb2_grpc.add_ProbeServiceServicer_to_server, probes, service="probe", scope="probe")
            server.add(
                evaluator_pb2_grpc.add_EvaluatorServiceServicer_to_server,
                servicer,
                service="evaluator",
                scope="evaluator",
            )
            await server.start()
            stack.push_async_callback(server.stop, 0)
            stack.push_async_callback(sessions.close)
            own = await stack.enter_async_context(open_channel(server.address))
            stub = evaluator_pb2_grpc.EvaluatorServiceStub(own)
            return Bench(stub, probes, server.address, session_id)

        yield make


class Model:
    """An OpenAI-compatible API whose replies, or error codes, the test chooses."""

    def __init__(self, replies: list[str | int]) -> None:
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.url = ""


@contextmanager
def model(*replies: str | int) -> Iterator[Model]:
    served = Model(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            served.asked.append({**json.loads(body), "path": self.path, "key": self.headers.get("Authorization")})
            reply = served.replies.pop(0)
            self.send_response(reply if isinstance(reply, int) else 200)
            self.end_headers()
            if isinstance(reply, str):
                self.wfile.write(json.dumps({"choices": [{"message": {"content": reply}}]}).encode())

        def log_message(self, *_: object) -> None:
            """Stays quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        served.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield served
        server.shutdown()


def judge_at(url: str, **settings: Any) -> Judge:
    return judges.judge_of(JudgeConfig(endpoint=url, model="grader", **settings))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_WAIT_SECONDS", 0.01)


# ---- evidence, and judging again -------------------------------------------------------------------------------------
async def test_a_verdict_holds_what_was_read_and_is_reached_again_from_it(bench_of: BenchOf) -> None:
    bench = await bench_of()
    first = await bench.evaluate(
        rule(contents("last", "document.querySelector('#area').outerText", must_include=["o"]))
    )
    assert first.evidence.final_url.startswith("http://127.0.0.1:")
    (reading,) = first.evidence.readings
    assert (reading.url, reading.locator) == ("", "document.querySelector('#area').outerText")
    assert reading.read_url == first.evidence.final_url
    again = await bench.rescore(first)
    assert (again.verdict.outcome, again.changed) == (first.outcome, False)
    assert again.verdict.evidence == first.evidence


async def test_another_dialect_says_which_verdicts_it_changes(bench_of: BenchOf) -> None:
    bench = await bench_of()
    lite = await bench.evaluate(rule(answers(must_include=["65 |OR| 3"])), "3")
    assert lite.outcome == pb.OUTCOME_SUCCESS
    upstream = await bench.rescore(lite, dialect=UPSTREAM)
    assert (upstream.verdict.outcome, upstream.changed) == (pb.OUTCOME_FAILURE, True)
    assert upstream.verdict.rule.webarena.dialect == UPSTREAM
    strict = await bench.rescore(upstream.verdict, strict=True)
    assert (strict.verdict.outcome, strict.changed) == (pb.OUTCOME_SUCCESS, True)


async def test_a_whole_page_is_kept_small_enough_to_travel(bench_of: BenchOf) -> None:
    bench = await bench_of()
    verdict = await bench.evaluate(rule(contents("last", "", must_include=["click"])))
    assert verdict.outcome == pb.OUTCOME_SUCCESS
    assert verdict.ByteSize() < 128 * 1024
    assert not (await bench.rescore(verdict)).changed
    verdict.evidence.readings[0].ClearField("value")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await bench.rescore(verdict)
    assert from_rpc(error.value).reason == "NO_EVIDENCE"


async def test_a_browser_that_crashed_leaves_a_verdict_on_the_answer_alone(bench_of: BenchOf) -> None:
    bench = await bench_of()
    bench.probes.crashed = True
    assert (await bench.evaluate(rule(answers(exact_match="a")), "a")).outcome == pb.OUTCOME_SUCCESS
    verdict = await bench.evaluate(rule({"eval_types": ["url_match"], "reference_url": "http://site.test/"}))
    assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, "BROWSER_CRASHED")


async def test_a_page_that_does_not_load_makes_the_verdict_invalid(bench_of: BenchOf) -> None:
    verdict = await (await bench_of()).evaluate(
        rule(contents(f"http://127.0.0.1:{free_port()}/", "", must_include=["a"]))
    )
    assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, "PROBE_FAILED")


async def test_javascript_of_a_task_that_throws_is_a_failure_and_not_a_fault(bench_of: BenchOf) -> None:
    verdict = await (await bench_of()).evaluate(rule(contents("last", "document.nothing.here", exact_match="a")))
    assert verdict.outcome == pb.OUTCOME_FAILURE


@pytest.mark.parametrize(
    "eval_",
    [
        contents("last", "func:__import__('os').system('true')", exact_match="0"),
        contents("last", "open('/etc/passwd').read()", exact_match="0"),
        contents("func:eval('1')", "", exact_match="0"),
        contents("__WIKIPEDIA__/wiki", "", must_include=["a"]),
        {"eval_types": ["guess"]},
        {"eval_types": []},
        {"eval_types": ["url_match"], "reference_url": None},
        {"eval_types": ["url_match"], "reference_url": "http://[", "url_note": "sometimes"},
        answers(must_include="no list"),
    ],
)
async def test_a_malformed_rule_makes_the_verdict_invalid(bench_of: BenchOf, eval_: dict[str, Any]) -> None:
    verdict = await (await bench_of()).evaluate(rule(eval_), "0")
    assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, "RULE_MALFORMED")


# ---- agents that say nothing -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("references", [{"fuzzy_match": "N/A"}, {"exact_match": "N/A"}, {"fuzzy_match": ["N/A"]}])
async def test_saying_nothing_is_no_answer_unless_old_results_are_to_be_had(
    bench_of: BenchOf, references: dict[str, object]
) -> None:
    bench = await bench_of()
    silent = await bench.evaluate(rule(answers(**references)), None)
    assert (silent.outcome, silent.checks[0].explanation) == (pb.OUTCOME_FAILURE, "The agent gave no answer.")
    assert (await bench.evaluate(rule(answers(**references)), "N/A")).outcome == pb.OUTCOME_SUCCESS
    as_before = await bench.rescore(silent, unanswered_is_na=True)
    assert (as_before.verdict.outcome, as_before.changed) == (pb.OUTCOME_SUCCESS, True)


async def test_the_old_reward_for_silence_is_a_switch_of_the_config(bench_of: BenchOf) -> None:
    bench = await bench_of(config=WebArenaConfig(unanswered_is_na=True))
    verdict = await bench.evaluate(rule(answers(fuzzy_match=["N/A"])), None)
    assert verdict.outcome == pb.OUTCOME_SUCCESS
    assert verdict.rule.webarena.unanswered_is_na


# ---- judges ----------------------------------------------------------------------------------------------------------
async def test_no_judge_makes_invalid_only_what_needs_one(bench_of: BenchOf) -> None:
    bench = await bench_of()
    free = await bench.evaluate(rule(answers(fuzzy_match=["The Tank"])), "a tank")
    assert (free.outcome, free.reason) == (pb.OUTCOME_INVALID, "JUDGE_NOT_CONFIGURED")
    assert free.detail == "the rule needs a judge, and none is configured"
    assert free.evidence.final_url
    elsewhere = {"eval_types": ["string_match", "url_match"], "reference_url": "http://elsewhere.test/"}
    decided = await bench.evaluate(rule({**answers(fuzzy_match=["The Tank"]), **elsewhere}), "a tank")
    assert decided.outcome == pb.OUTCOME_FAILURE


async def test_the_judge_is_asked_once_and_its_words_are_kept(bench_of: BenchOf) -> None:
    with model("Correct.") as served:
        bench = await bench_of(judge_at(served.url))
        verdict = await bench.evaluate(rule(answers(fuzzy_match=["The Tank", "Grey"])), "a grey tank")
        assert verdict.outcome == pb.OUTCOME_SUCCESS
        (exchange,) = verdict.evidence.exchanges
        assert (exchange.reference, exchange.reply, exchange.model) == ("The Tank, Grey", "Correct.", "grader")
        (asked,) = served.asked
        assert (asked["temperature"], asked["path"]) == (0, "/v1/chat/completions")
        assert "Find the best-selling item" in asked["messages"][0]["content"]
    assert not (await bench.rescore(verdict)).changed


async def test_upstream_asks_about_each_reference_until_one_is_denied(bench_of: BenchOf) -> None:
    with model("correct", "Partially correct") as served:
        bench = await bench_of(judge_at(served.url))
        verdict = await bench.evaluate(rule(answers(fuzzy_match=["Tank", "Grey", "New"]), UPSTREAM), "a tank")
        assert verdict.outcome == pb.OUTCOME_FAILURE
        assert [each.reference for each in verdict.evidence.exchanges] == ["Tank", "Grey"]


async def test_a_reason_for_giving_up_is_compared_with_the_true_one(bench_of: BenchOf) -> None:
    with model("same") as served:
        bench = await bench_of(judge_at(served.url))
        verdict = await bench.evaluate(rule(answers(fuzzy_match="N/A")), "no item of that kind")
        assert verdict.outcome == pb.OUTCOME_SUCCESS
        assert "There is no such item" in served.asked[0]["messages"][0]["content"]


async def test_a_judge_that_comes_back_is_asked_again(tmp_path: Any) -> None:
    (tmp_path / "key").write_text("secret\n")
    with model(503, 429, "incorrect") as served:
        judge = judge_at(served.url, api_key_file=tmp_path / "key")
        exchange = await judge.ask(Question(Kind.FUZZY, "a", "b"), "which?")
        assert (exchange.reply, served.asked[-1]["key"]) == ("incorrect", "Bearer secret")


async def test_a_key_that_is_renewed_is_shown_from_then_on(tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("first\n")
    with model("same", "same") as served:
        judge = judge_at(served.url, api_key_file=key)
        for shown in ("first", "second one"):
            key.write_text(shown)
            await judge.ask(Question(Kind.FUZZY, "a", "b"), "which?")
    assert [asked["key"] for asked in served.asked] == ["Bearer first", "Bearer second one"]


@pytest.mark.parametrize(
    ("replies", "reason"),
    [([503, 503, 503], "JUDGE_UNAVAILABLE"), ([401], "JUDGE_REFUSED"), (["I cannot say."], "JUDGE_REPLY_MALFORMED")],
)
async def test_a_judge_that_gives_no_verdict_leaves_none(
    bench_of: BenchOf, replies: list[str | int], reason: str
) -> None:
    with model(*replies) as served:
        bench = await bench_of(judge_at(served.url))
        verdict = await bench.evaluate(rule(answers(fuzzy_match=["a"])), "b")
        assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, reason)
        assert not served.replies


async def test_a_malformed_reply_is_not_remembered_and_judging_again_asks_anew() -> None:
    malformed, question = Exchange("?", "I cannot say.", "grader"), Question(Kind.FUZZY, "a", "b")
    with model("I cannot say.", "correct") as served:
        for evidence in (Evidence(), Evidence(exchanges={question: malformed})):
            judge = RecordedJudge(evidence, judge_at(served.url), math.inf)
            served.replies[:] = ["I cannot say.", "correct"]
            with pytest.raises(NoVerdictError) as fault:
                await judge.ask(question, "which?")
            assert fault.value.reason == "JUDGE_REPLY_MALFORMED"
            assert (await judge.ask(question, "which?")).reply == "correct"
            assert (await judge.ask(question, "which?")).reply == "correct"
            assert (evidence.exchanges[question].reply, served.replies) == ("correct", [])


async def test_a_judge_that_hangs_is_unavailable_before_the_caller_s_time_is_up(bench_of: BenchOf) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bench = await bench_of(judge_at(f"http://127.0.0.1:{port}/v1", timeout_seconds=6, attempts=9), seconds=4)
        verdict = await bench.evaluate(rule(answers(fuzzy_match=["a"])), "b")
        assert (verdict.outcome, verdict.reason) == (pb.OUTCOME_INVALID, "JUDGE_UNAVAILABLE")
        again = (await bench.rescore(verdict)).verdict
        assert (again.outcome, again.reason) == (pb.OUTCOME_INVALID, "JUDGE_UNAVAILABLE")


class Inference(inference_pb2_grpc.InferenceServiceServicer):
    """A model behind our own contract."""

    async def Render(self, request: inference.RenderRequest, _: Any) -> inference.RenderResponse:
        return inference.RenderResponse(prompt_token_ids=request.messages[0].text.encode())

    async def Generate(self, request: inference.GenerateRequest, _: Any) -> inference.GenerateResponse:
        assert request.sampling.temperature == 0
        asked = bytes(request.prompt_token_ids).decode()
        reply = "different" if "Reported reason: bored" in asked else "same"
        return inference.GenerateResponse(text=reply, model=inference.ModelIdentity(model_id="ours"))


@asynccontextmanager
async def serving(servicer: Inference) -> AsyncIterator[str]:
    server = Server(ServerConfig(port=0), name="inference", version="test")
    register = inference_pb2_grpc.add_InferenceServiceServicer_to_server
    server.add(register, servicer, service="inference", scope="inference")
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop(0)


@pytest.fixture
async def inference_address() -> AsyncIterator[str]:
    async with serving(Inference()) as address:
        yield address


@pytest.mark.parametrize("name", ["ours", ""])
async def test_a_model_behind_the_inference_contract_can_judge(inference_address: str, name: str) -> None:
    judge = judges.judge_of(JudgeConfig(endpoint=f"grpc://{inference_address}", model=name))
    exchange = await judge.ask(Question(Kind.UNACHIEVABLE, "sold out", "bored"), "buy")
    assert (exchange.reply, exchange.model) == ("different", "ours")


async def test_an_attempt_at_asking_a_model_is_one_wait_for_all_its_calls() -> None:
    class Slow(Inference):
        async def Render(self, request: inference.RenderRequest, context: Any) -> inference.RenderResponse:
            await asyncio.sleep(0.6)
            return await super().Render(request, context)

        async def Generate(self, request: inference.GenerateRequest, context: Any) -> inference.GenerateResponse:
            assert context.time_remaining() < 0.6
            return await super().Generate(request, context)

    async with serving(Slow()) as address:
        judge = judges.judge_of(JudgeConfig(endpoint=f"grpc://{address}", timeout_seconds=1.1, attempts=1))
        assert (await judge.ask(Question(Kind.FUZZY, "a", "b"), "which?")).reply == "same"


async def test_a_model_other_than_the_configured_one_does_not_judge(inference_address: str) -> None:
    with pytest.raises(NoVerdictError, match=r"serves the model 'ours', and judge\.model is 'grader'") as fault:
        await judge_at(f"grpc://{inference_address}").ask(Question(Kind.FUZZY, "a", "b"), "which?")
    assert fault.value.reason == "JUDGE_UNAVAILABLE"


async def test_a_judge_that_is_not_there_is_given_up_within_its_attempts() -> None:
    for endpoint in (f"http://127.0.0.1:{free_port()}/v1", f"grpc://127.0.0.1:{free_port()}"):
        with pytest.raises(NoVerdictError) as fault:
            await judge_at(endpoint, attempts=2, timeout_seconds=1).ask(Question(Kind.FUZZY, "a", "b"), "which?")
        assert fault.value.reason == "JUDGE_UNAVAILABLE"
