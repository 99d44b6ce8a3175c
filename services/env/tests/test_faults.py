"""Crashes: told within two seconds, to the session that had one and to no other; and what does not come up.

The seconds are those that this process gets: where the machine has no time for it, its clock stands still, too.
"""

import asyncio
import contextlib
import time

import grpc.aio
import psutil
import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent_env.config import BrowserConfig, SessionsConfig

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

BOUND = 2.0
TICK = 0.05


async def pause(seconds: float) -> None:
    """Time is what these tests are about."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def watch_seconds(ticks: list[None]) -> None:
    """Ticks until it is cancelled."""
    while True:
        await pause(TICK)
        ticks.append(None)


async def fault_of(service, session_id: str) -> str:
    """The reason that the session is listed with, once it is; asks nothing of the session itself."""
    while True:
        listed = await service.environment.ListSessions(env_pb2.ListSessionsRequest(), timeout=20)
        reason = next(each.fault_reason for each in listed.sessions if each.session_id == session_id)
        if reason:
            return reason
        await pause(0.02)


async def never(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def crash_page(service, page, _browser: psutil.Process) -> None:
    tab = await service.pool.get(page.session_id).context.active()
    crashing = asyncio.ensure_future(tab.page.goto("chrome://crash"))
    crashing.add_done_callback(lambda done: done.cancelled() or done.exception())


async def kill_renderer(_service, _page, browser: psutil.Process) -> None:
    """Kills the one that is busy."""
    renderers = [each for each in browser.children(recursive=True) if "--type=renderer" in each.cmdline()]
    before = {each: each.cpu_times().user for each in renderers}
    while not (spinning := [each for each in renderers if each.cpu_times().user - before[each] > 0.5]):
        await pause(0.02)
    spinning[0].kill()


async def kill_browser(_service, _page, browser: psutil.Process) -> None:
    browser.kill()


async def kill_driver(_service, _page, browser: psutil.Process) -> None:
    browser.parent().kill()


SPIN = "void setTimeout(() => { for (;;) {} }, 50)"


@pytest.mark.parametrize("crash", [crash_page, kill_renderer, kill_browser, kill_driver])
@pytest.mark.parametrize("idle", [True, False], ids=["while it is idle", "while it takes a step"])
async def test_a_crash_ends_its_session_in_time_and_no_other(make_service, open_play, reason, crash, idle):
    # One browser a session, so that a browser's death is one session's as well.
    config = BrowserConfig(sessions_before_restart=1)
    async for service in make_service(SessionsConfig(warm_contexts=0), browser=config):
        page = await open_play(
            service, f"<button onclick='{SPIN}'>spin</button><button onclick='fetch(\"/never\")'>fetch</button>"
        )
        service.pages.handlers["never"] = never
        spins = crash is not crash_page  # which a busy page would not open
        browser = service.pool.browser.processes[-1]
        other = await open_play(service, "<button onclick='document.title = 1'>go</button>")
        step = None
        if not idle:
            step = asyncio.ensure_future(page.click(0 if spins else 1))
            await pause(0.3)
        elif spins:
            await page.ask(SPIN)
        await crash(service, page, browser)
        watch = asyncio.create_task(watch_seconds(ticks := []))
        assert await fault_of(service, page.session_id) == "BROWSER_CRASHED"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await (page.observe() if step is None else step)
        assert reason(error.value) == "BROWSER_CRASHED"
        watch.cancel()
        assert len(ticks) * TICK < BOUND
        assert (await other.click(0)).observation.title == "1"


class Deadly:
    """A page during whose first loads the browser dies."""

    def __init__(self, service) -> None:
        self.service = service
        self.deaths = self.asked = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.asked <= self.deaths:
            self.service.pool.browser.processes[-1].kill()
            await asyncio.Event().wait()
        return web.Response(text="<p>up</p>", content_type="text/html")

    async def open(self, session_id: str, deaths: int) -> env_pb2.CreateSessionResponse:
        self.deaths, self.asked = deaths, 0
        task = env_pb2.TaskRef(suite="pages", task_id="deadly")
        request = env_pb2.CreateSessionRequest(session_id=session_id, task=task)
        # A channel that does not try again by itself.
        async with grpc.aio.insecure_channel(self.service.address) as channel:
            return await env_pb2_grpc.EnvironmentServiceStub(channel).CreateSession(request, timeout=60)


async def test_a_task_whose_browser_dies_while_it_opens_is_opened_again_once(make_service, open_play, reason):
    async for service in make_service(SessionsConfig(warm_contexts=0)):
        deadly = Deadly(service)
        service.pages.write("", "deadly")
        service.pages.handlers["deadly"] = deadly.answer
        assert ">up</p>" in (await deadly.open("a", deaths=1)).observation.text
        assert deadly.asked == 2
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await deadly.open("b", deaths=2)
        assert (reason(error.value), deadly.asked) == ("BROWSER_UNAVAILABLE", 2)
        assert (await open_play(service, "<p>next</p>")).text == "<p>next</p>"


async def test_a_task_that_does_not_come_up_in_the_time_given_is_told(make_service, open_play, reason):
    async for service in make_service(SessionsConfig()):
        name = service.pages.write("", "hanging")
        service.pages.handlers[name] = never
        task = env_pb2.TaskRef(suite="pages", task_id=name)
        options = env_pb2.SessionOptions(reset_timeout={"seconds": 1})
        request = env_pb2.CreateSessionRequest(session_id="a", task=task, options=options)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await service.environment.CreateSession(request, timeout=60)
        assert reason(error.value) == "RESET_TIMEOUT"
        assert "within 1 s" in error.value.details()
        assert (await open_play(service, "<p>next</p>")).text == "<p>next</p>"


@pytest.mark.parametrize(("bound", "replaced"), [(256, True), (65_536, False)])
async def test_a_browser_past_its_memory_bound_takes_no_further_session(make_service, open_play, bound, replaced):
    config = BrowserConfig(memory_before_restart_mib=bound, memory_check_seconds=0.001)
    async for service in make_service(SessionsConfig(warm_contexts=0), browser=config):
        first = await open_play(service, "<button onclick='document.title = 1'>go</button>")
        old = service.pool.browser.processes[-1]
        second = await open_play(service, "<p>second</p>")
        generations = [service.pool.get(each.session_id).context.generation for each in (first, second)]
        assert (generations[0] < generations[1]) is replaced
        assert (await first.click(0)).observation.title == "1"
        closing = env_pb2.CloseSessionRequest(session_id=first.session_id)
        await service.environment.CloseSession(closing, timeout=20)
        await service.pool.browser.retired_ended()
        assert old.is_running() is not replaced
        assert (await second.observe()).text == "<p>second</p>"


async def test_many_sessions_wait_beside_each_other(make_service, open_play):
    async for service in make_service(SessionsConfig(capacity=32, lease_seconds=600)):
        plays = [await open_play(service, "<p>page</p>") for _ in range(32)]
        waiting = plays[0].act('do(action="Wait")')
        begun = time.monotonic()
        await waiting
        alone = time.monotonic() - begun
        begun = time.monotonic()
        await asyncio.gather(*(page.act('do(action="Wait")') for page in plays))
        # One after another they would take 32 times as long.
        assert time.monotonic() - begun < 8 * alone


async def test_an_observation_of_megabytes_travels(make_service, open_play):
    async for service in make_service(SessionsConfig(max_observation_bytes=4_194_304)):
        kinds = [env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML, env_pb2.OBSERVATION_KIND_AXTREE]
        page = await open_play(
            service,
            "<style>p{position:absolute;top:0;margin:0}</style><div></div><script>"
            "document.querySelector('div').innerHTML = `<p>${'word '.repeat(90)}</p>`.repeat(12000)</script>",
            observations=kinds,
            reset_timeout={"seconds": 90},
            step_timeout={"seconds": 90},
        )
        seen = page.opened.observation
        assert len(seen.text) + len(seen.axtree) > 7_000_000
        assert max(len(seen.text), len(seen.axtree)) <= 4_194_304
