"""What the evaluator can read of a session."""

import json

import grpc.aio
import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2, probe_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def probe(page, **query):
    request = probe_pb2.ProbeRequest(session_id=page.session_id, **query)
    return await page.service.probes.Probe(request, timeout=20)


async def refused(call, reason) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason(caught.value)


async def test_a_page_is_read_in_place(play):
    page = await play("<p class='x'>one</p><p class='x'>two</p><script>history.replaceState(0, '', '#kept')</script>")
    assert (await probe(page, javascript="1 + 1")).value_json == "2"
    assert json.loads((await probe(page, javascript="async () => ({a: [null, 'é']})")).value_json) == {"a": [None, "é"]}
    assert (await probe(page, javascript="undefined")).value_json == "null"
    answer = await probe(page, selector=".x")
    assert json.loads(answer.value_json) == ["one", "two"]
    assert answer.url.endswith("#kept")
    assert "<p class=" in json.loads((await probe(page, html=probe_pb2.WholePage())).value_json)


async def test_another_address_is_read_beside_the_agents_page(play, service):
    other = service.pages.write("<p>other</p><script>document.cookie = 'seen=1'</script>")
    page = await play("<input><script>document.cookie = 'mine=1'</script>")
    await page.act('do(action="Type", argument="typed", element="0")')
    answer = await probe(
        page, url=f"{service.pages.url}/{other}", javascript="document.body.innerText + document.cookie"
    )
    assert "other" in answer.value_json
    assert "mine=1" in answer.value_json
    assert answer.url.endswith(other)
    observation = await page.observe()
    assert 'data-value="typed"' in observation.text
    assert len(observation.tabs) == 1


async def test_a_page_opened_for_reading_is_read_once_it_is_quiet(play, service):
    later = "setTimeout(() => document.body.append(text.length > 0 ? 'loaded' : 'empty'), 100)"
    script = f"setTimeout(() => fetch(location.href).then((answer) => answer.text()).then((text) => {later}), 100)"
    slow = service.pages.write(f"<p>slow</p><script>{script}</script>")
    page = await play("<p>a</p>")
    answer = await probe(page, url=f"{service.pages.url}/{slow}", javascript="document.body.innerText")
    assert "loaded" in answer.value_json


async def test_a_probe_that_cannot_work_says_why(play, service, reason):
    page = await play("<p>a</p>")
    assert await refused(probe(page, javascript="nothing.here"), reason) == "PROBE_FAILED"
    assert await refused(probe(page, javascript="("), reason) == "PROBE_FAILED"
    assert await refused(probe(page, javascript="NaN"), reason) == "PROBE_FAILED"
    assert await refused(probe(page, selector="]["), reason) == "PROBE_FAILED"
    assert await refused(probe(page, url="http://127.0.0.1:1/", javascript="1"), reason) == "PROBE_FAILED"
    assert await refused(probe(page, url="file:///etc/passwd", javascript="1"), reason) == "INVALID_REQUEST"
    assert await refused(probe(page), reason) == "INVALID_REQUEST"
    page.session_id = "unknown"
    assert await refused(probe(page, javascript="1"), reason) == "SESSION_NOT_FOUND"


async def test_an_error_page_is_no_content_and_a_missing_page_is(play, service, reason):
    async def answers(request: web.Request) -> web.Response:
        return web.Response(status=int(request.query["status"]), text="this page")

    async def sends_away(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.query["to"])

    service.pages.handlers |= {"answers": answers, "sends_away": sends_away}
    page = await play("<p>a</p>")
    text = "document.body.innerText"
    for status in (404, 403):
        there = await probe(page, url=f"{service.pages.url}/answers?status={status}", javascript=text)
        assert there.value_json == '"this page"'
    for status in (500, 503):
        failing = probe(page, url=f"{service.pages.url}/answers?status={status}", javascript=text)
        assert await refused(failing, reason) == "PROBE_FAILED"
    away = "http://elsewhere.test/"  # where the session may not go
    for url in (away, f"{service.pages.url}/sends_away?to={away}"):
        assert await refused(probe(page, url=url, javascript=text), reason) == "PROBE_FAILED"


async def test_a_probe_has_a_bound(play, reason):
    page = await play("<p>a</p>")
    request = probe_pb2.ProbeRequest(session_id=page.session_id, javascript="new Promise(() => {})")
    assert await refused(page.service.probes.Probe(request, timeout=2), reason) in {
        "PROBE_TIMEOUT",
        "DEADLINE_EXCEEDED",
    }
    assert (await page.observe()).text == "<p>a</p>"


async def test_the_rule_is_given_to_probes_alone(play, service):
    page = await play(task="click-checkboxes", seed=7)
    request = probe_pb2.GetTaskRuleRequest(session_id=page.session_id)
    rule = (await service.probes.GetTaskRule(request, timeout=20)).rule
    assert (rule.task.task_id, rule.seed) == ("click-checkboxes", 7)
    assert rule.native.success_threshold == pytest.approx(0.999)
    listed = await service.environment.ListTasks(env_pb2.ListTasksRequest(), timeout=20)
    assert "WOB" not in str(listed)
