"""The life of a session: created once, stepped in order, leased, closed."""

import asyncio
import contextlib

import grpc.aio
import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2
from webagent_env.config import BrowserConfig, SessionsConfig
from webagent_runtime.errors import ServiceError

pytestmark = pytest.mark.asyncio(loop_scope="session")


def create(session_id: str, **changes) -> env_pb2.CreateSessionRequest:
    task = env_pb2.TaskRef(suite="miniwob", task_id=changes.pop("task", "click-test-2"))
    return env_pb2.CreateSessionRequest(session_id=session_id, task=task, **changes)


async def refused(call, reason) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason(caught.value)


async def close(service, *session_ids: str) -> None:
    for session_id in session_ids:
        await service.environment.CloseSession(env_pb2.CloseSessionRequest(session_id=session_id), timeout=20)


async def test_creating_again_gives_the_same_session_as_it_stands(service, reason):
    env = service.environment
    first, second = await asyncio.gather(
        env.CreateSession(create("twice"), timeout=30), env.CreateSession(create("twice"), timeout=30)
    )
    assert first.session.created_at == second.session.created_at
    assert first.session.address == service.address
    await env.Step(env_pb2.StepRequest(session_id="twice", action_text='do(action="Scroll Down")'), timeout=20)
    third = await env.CreateSession(create("twice"), timeout=30)
    assert third.session.next_step_index == 1
    assert await refused(env.CreateSession(create("twice", seed=1), timeout=30), reason) == "SESSION_CONFLICT"
    await close(service, "twice")


async def test_a_lost_answer_to_creating_leaves_the_session_for_the_retry(service):
    asked, gate = asyncio.Event(), asyncio.Event()
    times = 0

    async def slow(_: web.Request) -> web.Response:
        nonlocal times
        times += 1
        asked.set()
        await gate.wait()
        return web.Response(text="<p>up</p>", content_type="text/html")

    name = service.pages.write("", "opened-slowly")
    service.pages.handlers[name] = slow
    request = env_pb2.CreateSessionRequest(session_id="lost", task=env_pb2.TaskRef(suite="pages", task_id=name))
    call = service.environment.CreateSession(request, timeout=30)
    call.add_done_callback(lambda _: None)  # the call begins here
    await asyncio.wait_for(asked.wait(), 20)
    call.cancel()
    gate.set()
    again = await service.environment.CreateSession(request, timeout=30)
    assert (">up</p>" in again.observation.text, times) == (True, 1)
    await close(service, "lost")


async def test_bad_requests_name_what_is_wrong(service, reason):
    env = service.environment
    bad = env_pb2.SessionOptions(max_observation_bytes=10)
    assert await refused(env.CreateSession(create("a b"), timeout=20), reason) == "INVALID_REQUEST"
    assert await refused(env.CreateSession(create("ok", options=bad), timeout=20), reason) == "INVALID_REQUEST"
    never_read = env_pb2.SessionOptions(settle_timeout={"seconds": 6}, step_timeout={"seconds": 6})
    assert await refused(env.CreateSession(create("ok", options=never_read), timeout=20), reason) == "INVALID_REQUEST"
    assert await refused(env.Step(env_pb2.StepRequest(session_id="none"), timeout=20), reason) == "INVALID_REQUEST"
    unknown = create("ok")
    unknown.task.suite = "webarena"
    assert await refused(env.CreateSession(unknown, timeout=20), reason) == "SUITE_NOT_FOUND"


async def test_an_unknown_task_is_refused_with_the_nearest_one(service, reason):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.environment.CreateSession(create("x", task="click-buton"), timeout=20)
    assert reason(caught.value) == "TASK_NOT_FOUND"
    assert "'click-button'" in caught.value.details()


async def test_the_same_step_again_returns_the_recorded_answer(play):
    page = await play("<button onclick='document.title += 1'>go</button>")
    first = await page.click(0)
    page.index = 0
    again = await page.click(0)
    assert again == first
    assert await page.ask("document.title") == '"1"'


async def test_a_step_index_has_one_action_and_none_is_skipped(play, reason):
    page = await play("<button>go</button>")
    await page.click(0)
    page.index = 0
    assert await refused(page.act('do(action="Wait")'), reason) == "STEP_CONFLICT"
    page.index = 2
    assert await refused(page.click(0), reason) == "STEP_OUT_OF_ORDER"


async def test_a_step_whose_caller_went_away_is_taken_once(play, service):
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await gate.wait()
        return web.Response(text="x")

    service.pages.handlers["gate"] = slow
    page = await play("<button onclick='document.title += 1; fetch(\"/gate\")'>go</button>")
    request = env_pb2.StepRequest(session_id=page.session_id, action_text='do(action="Click", element="0")')
    call = service.environment.Step(request, timeout=20)
    call.add_done_callback(lambda _: None)  # the call begins here
    await asyncio.wait_for(asked.wait(), 20)
    call.cancel()
    gate.set()
    response = await page.click(0)
    assert response.observation.title == "1"


async def test_after_the_end_a_session_is_readable_and_takes_no_step(play, reason):
    page = await play(task="click-test-2")
    response = await page.click(0 if ">ONE<" in page.text.split("</button>")[0] else 1)
    assert response.terminated
    assert await refused(page.act("exit()"), reason) == "EPISODE_OVER"
    assert (await page.observe()).url.endswith("click-test-2.html?seed=0")
    page.index = 0
    assert (await page.act(f'do(action="Click", element="{response.result.action.click.element}")')).terminated


async def test_capacity_is_kept_and_freed(make_service, open_play, reason):
    async for service in make_service(SessionsConfig(capacity=1)):
        await open_play(service, "<p>1</p>", name="one")
        assert await refused(open_play(service, "<p>2</p>"), reason) == "AT_CAPACITY"
        capabilities = await service.environment.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=20)
        assert (capabilities.capacity, capabilities.sessions) == (1, 1)
        assert capabilities.browser.startswith("chromium 1")
        await close(service, "one")
        await open_play(service, "<p>2</p>")


async def test_a_session_without_calls_is_reaped(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<p>1</p>", lease={"nanos": 300_000_000})
        await gone(service, page.session_id)
        assert await refused(page.observe(), reason) == "SESSION_NOT_FOUND"


async def test_calls_renew_the_lease_but_not_the_lifetime(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<p>1</p>", lease={"seconds": 2}, lifetime={"seconds": 4})
        request = env_pb2.RenewLeaseRequest(session_id=page.session_id)
        start = page.opened.session
        renewed = (await service.environment.RenewLease(request, timeout=20)).session
        assert renewed.lease_expires_at.ToDatetime() > start.lease_expires_at.ToDatetime()
        assert renewed.expires_at == start.expires_at
        while service.pool.sessions():
            with contextlib.suppress(ServiceError):
                service.pool.get(page.session_id)
            assert renewed.lease_expires_at.ToDatetime() <= renewed.expires_at.ToDatetime()
            await pause(0.1)
        assert await refused(page.observe(), reason) == "SESSION_NOT_FOUND"


async def test_a_session_whose_client_goes_away_after_a_long_call_is_reaped_by_its_lease(make_service, open_play):
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await gate.wait()
        return web.Response(text="x")

    async for service in make_service(SessionsConfig(settle_timeout_seconds=20)):
        service.pages.handlers["gate"] = slow
        page = await open_play(service, "<button onclick='fetch(\"/gate\")'>go</button>", lease={"nanos": 500_000_000})
        step = asyncio.create_task(page.click(0))
        await asyncio.wait_for(asked.wait(), 20)
        await pause(1)  # the lease that began with the call is over, and was looked at
        gate.set()
        assert (await step).result.status == env_pb2.ACTION_STATUS_OK
        await gone(service, page.session_id)


async def test_a_context_that_cannot_be_wiped_is_closed_and_sessions_are_reaped_after_it(
    make_service, open_play, reused_pages
):
    async def sandboxed(_: web.Request) -> web.Response:
        # Such a page has no storage, not even to clear.
        return web.Response(
            text="<p>x</p>", content_type="text/html", headers={"Content-Security-Policy": "sandbox allow-scripts"}
        )

    name = reused_pages.write("", "sandboxed")
    reused_pages.handlers[name] = sandboxed
    async for service in make_service(SessionsConfig(warm_contexts=0), suites=[reused_pages]):
        for _ in range(2):
            page = await open_play(service, task=name, suite="reused", lease={"nanos": 300_000_000})
            context = service.pool.get(page.session_id).context
            await gone(service, page.session_id)
            async with asyncio.timeout(20):
                while not context.gone():
                    await pause(0.02)


@pytest.mark.slow
async def test_an_opening_that_fails_after_it_was_closed_leaves_its_namesake_alone(make_service, reason):
    asked, hang = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        if not asked.is_set():
            asked.set()
            await hang.wait()
        return web.Response(text="<p>up</p>", content_type="text/html")

    async for service in make_service(SessionsConfig(warm_contexts=0)):
        name = service.pages.write("", "hanging-once")
        service.pages.handlers[name] = answer
        task = env_pb2.TaskRef(suite="pages", task_id=name)
        options = env_pb2.SessionOptions(reset_timeout={"seconds": 5})
        request = env_pb2.CreateSessionRequest(session_id="a", task=task, options=options)
        first = asyncio.ensure_future(refused(service.environment.CreateSession(request, timeout=30), reason))
        await asyncio.wait_for(asked.wait(), 20)
        closing = asyncio.create_task(service.pool.close("a"))
        await asyncio.sleep(0)
        await service.environment.CreateSession(request, timeout=30)
        assert await first == "RESET_TIMEOUT"
        await closing
        assert [session.spec.session_id for session in service.pool.sessions()] == ["a"]
        hang.set()


async def pause(seconds: float) -> None:
    """Time is what these tests are about."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def gone(service, session_id: str) -> None:
    async with asyncio.timeout(20):
        while any(session.spec.session_id == session_id for session in service.pool.sessions()):
            await pause(0.02)


async def test_sessions_do_not_see_each_other(play):
    html = "<p>x</p><script>document.cookie = 'a=1'; localStorage.setItem('k', '1')</script>"
    first = await play(html)
    second = await play("<p>y</p>")
    assert await first.ask("document.cookie + localStorage.getItem('k')") == '"a=11"'
    assert await second.ask("document.cookie + localStorage.getItem('k')") == '"null"'


async def test_closing_is_idempotent_and_listing_is_by_age(service):
    env = service.environment
    await env.CreateSession(create("older"), timeout=30)
    await env.CreateSession(create("newer"), timeout=30)
    listed = [info.session_id for info in (await env.ListSessions(env_pb2.ListSessionsRequest(), timeout=20)).sessions]
    assert listed.index("older") < listed.index("newer")
    assert (await env.CloseSession(env_pb2.CloseSessionRequest(session_id="older"), timeout=20)).existed
    assert not (await env.CloseSession(env_pb2.CloseSessionRequest(session_id="older"), timeout=20)).existed
    await close(service, "newer")


async def test_the_step_limit_of_the_environment_truncates(make_service, open_play):
    async for service in make_service(SessionsConfig(max_steps=2)):
        page = await open_play(service, "<p>1</p>")
        assert not (await page.act("nonsense")).truncated
        assert (await page.act("nonsense")).truncated


async def test_a_page_that_hangs_is_a_fault_and_not_an_observation(make_service, open_play, reason):
    async for service in make_service(SessionsConfig(settle_timeout_seconds=1, step_timeout_seconds=2)):
        page = await open_play(service, "<button onclick='for (;;) {}'>hang</button>")
        assert await refused(page.click(0), reason) == "STEP_TIMEOUT"
        page.index = 0
        assert await refused(page.click(0), reason) == "STEP_TIMEOUT"
        assert await refused(page.observe(), reason) == "STEP_TIMEOUT"
        await close(service, page.session_id)
        assert "ok" in (await open_play(service, "<p>ok</p>")).text


async def test_a_crashed_page_is_a_fault_of_its_session_alone(play, service, reason):
    page = await play("<p>a</p>")
    other = await play("<p>b</p>")
    tab = await service.pool.get(page.session_id).context.active()
    with pytest.raises(Exception, match=r"crash|closed|Timeout"):
        await tab.page.goto("chrome://crash", timeout=5000)
    assert await refused(page.act('do(action="Scroll Down")'), reason) == "BROWSER_CRASHED"
    assert (await other.observe()).text == "<p>b</p>"


async def test_a_crashed_browser_aborts_its_sessions_and_the_next_one_starts(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<p>a</p>")
        service.pool.browser.processes[-1].kill()
        assert await refused(page.act('do(action="Scroll Down")'), reason) == "BROWSER_CRASHED"
        assert await refused(page.observe(), reason) == "BROWSER_CRASHED"
        assert (await open_play(service, "<p>again</p>")).text == "<p>again</p>"


async def test_a_dead_driver_is_replaced(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<p>a</p>")
        service.pool.browser.processes[0].kill()
        assert await refused(page.act('do(action="Scroll Down")'), reason) == "BROWSER_CRASHED"
        assert (await open_play(service, "<p>again</p>")).text == "<p>again</p>"


async def test_draining_refuses_new_sessions_and_waits_for_the_last(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<button>go</button>")
        draining = asyncio.create_task(service.pool.drain())
        await asyncio.sleep(0)
        assert await refused(open_play(service, "<p>2</p>"), reason) == "DRAINING"
        assert (await page.click(0)).result.status == env_pb2.ACTION_STATUS_OK
        assert not draining.done()
        await close(service, page.session_id)
        await asyncio.wait_for(draining, 20)


async def test_a_crash_is_told_at_once_and_listed(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        page = await open_play(service, "<button onclick='while (true);'>go</button>")
        other = await open_play(service, "<p>other</p>")
        step = asyncio.ensure_future(page.click(0))
        await asyncio.sleep(0)
        tab = await service.pool.get(page.session_id).context.active()
        crashed = asyncio.ensure_future(tab.page.goto("chrome://crash"))
        try:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await step
            assert reason(error.value) == "BROWSER_CRASHED"
        finally:
            await asyncio.gather(crashed, return_exceptions=True)
        listed = await service.environment.ListSessions(env_pb2.ListSessionsRequest(), timeout=20)
        assert {each.session_id: each.fault_reason for each in listed.sessions} == {
            page.session_id: "BROWSER_CRASHED",
            other.session_id: "",
        }
        assert (await other.observe()).text == "<p>other</p>"


async def test_a_browser_is_replaced_after_so_many_sessions_and_ends_with_its_last(make_service, open_play):
    browser = BrowserConfig(sessions_before_restart=3)
    async for service in make_service(SessionsConfig(warm_contexts=0), browser=browser):
        plays = [await open_play(service, f"<button>{n}</button>") for n in range(4)]
        assert service.pool.browser.generation == 2
        texts = [(await page.click(0)).observation.text for page in plays]
        assert texts == [f'<button id="0">{n}</button>' for n in range(4)]
        old = service.pool.get(plays[0].session_id).context.generation
        for page in plays[:3]:
            await close(service, page.session_id)
        assert old == 1
        await service.pool.browser.retired_ended()
        assert (await plays[3].click(0)).observation.text == '<button id="0">3</button>'


async def test_the_next_sessions_context_is_ready_before_it_is_asked_for(make_service, open_play):
    async for service in make_service(SessionsConfig(warm_contexts=1)):
        first = await open_play(service, "<p>1</p>")
        await service.pool.warmed()
        before = service.pool.browser.opened
        second = await open_play(service, "<p>2</p>")
        assert second.text == "<p>2</p>"
        assert service.pool.browser.opened == before or service.pool.browser.opened == before + 1
        assert service.pool.get(first.session_id).context is not service.pool.get(second.session_id).context
