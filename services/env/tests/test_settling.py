"""When a page counts as quiet."""

import asyncio

import pytest
from aiohttp import web
from webagent_env.config import SessionsConfig

pytestmark = pytest.mark.asyncio(loop_scope="session")


def seconds(duration) -> float:
    return duration.ToTimedelta().total_seconds()


async def test_a_request_begun_by_the_action_is_waited_for(play, service):
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.Response(text="loaded")

    service.pages.handlers["slow"] = slow
    page = await play(
        "<button onclick='fetch(\"/slow\").then((r) => r.text()).then((t) => { p.textContent = t })'>go</button>"
        "<p id='p'></p>"
    )
    step = asyncio.create_task(page.click(0))
    await asyncio.wait_for(asked.wait(), 20)
    assert not step.done()
    answer.set()
    response = await step
    assert "loaded" in response.observation.text
    assert response.timings.quiet


async def test_a_short_one_shot_timer_is_waited_for(play):
    page = await play("<button onclick='setTimeout(() => { p.textContent = 1 }, 600)'>go</button><p id='p'>0</p>")
    response = await page.click(0)
    assert "<p>1</p>" in response.observation.text
    assert seconds(response.timings.settle) >= 0.5


async def test_a_long_timer_is_not_waited_for(play):
    page = await play("<button onclick='setTimeout(() => { p.textContent = 1 }, 20000)'>go</button><p id='p'>0</p>")
    response = await page.click(0)
    assert response.timings.quiet
    assert "<p>0</p>" in response.observation.text


async def test_a_cleared_timer_is_not_waited_for(play):
    page = await play("<button onclick='clearTimeout(setTimeout(() => {}, 900))'>go</button>")
    assert seconds((await page.click(0)).timings.settle) < 0.8


@pytest.mark.parametrize(
    "clock",
    [
        "setInterval(tick, 5)",
        "setTimeout(function again() { tick(); setTimeout(again, 5) }, 5)",
        "requestAnimationFrame(function again() { tick(); requestAnimationFrame(again) })",
        "(async () => { while (true) { tick(); await new Promise((done) => setTimeout(done, 5)) } })()",
    ],
)
async def test_timers_that_repeat_do_not_keep_a_page_busy(play, clock):
    page = await play(
        "<p id='p'></p><button>go</button>"
        f"<script>let n = 0; const tick = () => {{ p.textContent = n += 1 }}; window.start = () => {clock}</script>"
    )
    await page.ask("void start()")
    response = await page.click(0)
    assert response.timings.quiet


async def test_a_chain_of_short_timers_begun_by_the_action_is_waited_for(play):
    page = await play(
        "<button onclick='setTimeout(() => setTimeout(() => { p.textContent = 1 }, 300), 300)'>go</button>"
        "<p id='p'>0</p>"
    )
    assert "<p>1</p>" in (await page.click(0)).observation.text


async def test_an_animation_begun_by_the_action_is_waited_for(play):
    page = await play(
        "<div id='d' style='width:10px'>x</div><button onclick='const at = setInterval(() => {"
        'd.style.width = parseInt(d.style.width) + 10 + "px";'
        'if (d.style.width === "200px") { clearInterval(at); d.textContent = "wide" } }, 13)\'>go</button>'
    )
    assert "wide" in (await page.click(0)).observation.text


async def test_a_navigation_is_waited_for(play, service):
    other = service.pages.write(
        "<p id='p'>loading</p><script>setTimeout(() => { p.textContent = 'ready' }, 400)</script>"
    )
    page = await play(f"<button onclick='setTimeout(() => {{ location = \"/{other}\" }}, 100)'>go</button>")
    assert (await page.click(0)).observation.text == "<p>ready</p>"


async def test_a_page_that_never_rests_is_read_at_the_bound(make_service, open_play):
    async for service in make_service(SessionsConfig(settle_timeout_seconds=0.5)):
        page = await open_play(
            service,
            "<p id='p'></p><button onclick='(function again() { p.textContent = n++; setTimeout(again, 10) })()'>go"
            "</button><script>let n = 1</script>",
        )
        response = await page.click(0)
        assert not response.timings.quiet
        assert seconds(response.timings.settle) >= 0.5
        assert "<p>" in response.observation.text


async def test_calls_that_wait_for_one_another_do_not_end_a_session(make_service, open_play):
    async for service in make_service(SessionsConfig(settle_timeout_seconds=0.5, step_timeout_seconds=1.2)):
        page = await open_play(
            service,
            "<p id='p'></p><button onclick='(function again() { p.textContent = n++; setTimeout(again, 10) })()'>go"
            "</button><script>let n = 1</script>",
        )
        await page.click(0)
        seen = await asyncio.gather(*(page.observe() for _ in range(5)))
        assert all("<p>" in each.text for each in seen)


async def test_an_open_stream_does_not_keep_a_page_busy(play, service):
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: hello\n\n")
        await asyncio.sleep(3600)
        return response

    service.pages.handlers["stream"] = stream
    page = await play(
        "<p id='p'></p>"
        "<button onclick='new EventSource(\"/stream\").onmessage = (e) => { p.textContent = e.data }'>go</button>"
    )
    response = await page.click(0)
    assert response.timings.quiet


async def test_a_written_over_document_is_read(play):
    page = await play(
        "<button onclick='document.open(); document.write(\"<p>rewritten</p>\"); document.close()'>go</button>"
    )
    assert (await page.click(0)).observation.text == "<p>rewritten</p>"


async def test_a_document_that_is_opened_anew_while_it_is_waited_for_is_read_at_the_bound(play):
    page = await play(
        '<button onclick=\'setTimeout(() => { document.open(); document.write("<p>rewritten</p>"); document.close() },'
        " 300)'>go</button>",
        settle_timeout={"seconds": 2},
    )
    response = await page.click(0)
    assert (response.observation.text, response.timings.quiet) == ("<p>rewritten</p>", False)
    assert (await page.act('do(action="Scroll Down")')).observation.text == "<p>rewritten</p>"


async def test_a_suggestion_list_that_waits_for_the_typing_to_end_is_in_the_next_observation(play, service):
    async def suggest(request: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(text=f"suggestion for {request.query['q']}")

    service.pages.handlers["suggest"] = suggest
    page = await play(
        "<input oninput='clearTimeout(window.at); window.at = setTimeout(() => fetch(`/suggest?q=${this.value}`)"
        '.then((r) => r.text()).then((t) => { document.querySelector("p").textContent = t }), 600)\'><p></p>'
    )
    response = await page.act('do(action="Type", argument="lon", element="0")')
    assert "<p>suggestion for lon</p>" in response.observation.text
    assert response.timings.waited_for in {"timers", "loading"}


@pytest.mark.parametrize(
    "begun",
    [
        "oninput='show(this.value)'",
        "oninput='if (this.value === \"abcdef\") for (const n of NUMBERS) show(n)'",
        pytest.param(
            "oninput='if (this.value === \"abcdef\") (async () => { for (const n of NUMBERS) await show(n) })()'",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one for each key", "all at once", "one after another"],
)
async def test_every_request_of_an_action_is_waited_for_however_many_are_alike(play, service, begun):
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0.4)
        return web.Response(text=f"of {request.query['q']}")

    service.pages.handlers["zip"] = answer
    page = await play(
        f"<input {begun}><p></p><script>const NUMBERS = [1, 2, 3, 4, 5, 6];"
        " const show = async (q) => { if (q === '') return; const r = await fetch(`/zip?q=${q}`);"
        " document.querySelector('p').append(await r.text()) }</script>"
    )
    for times in (1, 2):
        await page.act('do(action="Type", argument="abcdef", element="0")')
        assert page.text.count("of") == 6 * times


async def test_what_a_page_polled_is_waited_for_in_the_next_session_of_its_context(
    make_service, open_play, reused_pages
):
    asked = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(0.5)
        return web.Response(text="answered")

    reused_pages.handlers["poll"] = answer
    polls = reused_pages.write("<p></p>")
    asks = reused_pages.write(
        "<p></p><script>fetch('/poll').then((r) => r.text())"
        ".then((t) => { document.querySelector('p').textContent = t })</script>"
    )
    async for service in make_service(SessionsConfig(warm_contexts=0), suites=[reused_pages]):
        first = await open_play(service, task=polls, suite="reused", name="first")
        await first.ask("void fetch('/poll')")
        await asyncio.wait_for(asked.wait(), 20)
        context = service.pool.get("first").context
        await service.pool.close("first")
        second = await open_play(service, task=asks, suite="reused", name="second")
        assert service.pool.get("second").context is context
        assert second.text == "<p>answered</p>"


@pytest.mark.parametrize(
    "poll",
    [
        "setInterval(() => fetch('/poll?n=' + n++).then(show), 30)",
        "(async () => { while (true) { await fetch('/poll?n=' + n++).then(show) } })()",
        "(function poll() { fetch('/poll?n=' + n++).then(show).then(() => setTimeout(() => poll(), 200)) })()",
    ],
)
async def test_a_page_that_polls_for_ever_does_not_slow_a_step(play, service, poll):
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response(text="tick")

    service.pages.handlers["poll"] = answer
    page = await play(
        "<p id='p'></p><button onclick='document.title = 1'>go</button>"
        f"<script>let n = 0; const show = () => {{ p.textContent = n }}; window.start = () => {{ {poll} }}</script>"
    )
    await page.ask("start()")
    await page.ask("new Promise((done) => setTimeout(done, 600))")
    response = await page.click(0)
    assert response.observation.title == "1"
    assert response.timings.quiet
    assert seconds(response.timings.settle) < 5


async def test_a_poll_does_not_hide_the_request_of_an_action(play, service):
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0.05 if request.path == "/poll" else 0.7)
        return web.Response(text="answered")

    service.pages.handlers["poll"] = service.pages.handlers["asked"] = answer
    page = await play(
        "<p id='p'></p><button onclick='fetch(\"/asked\").then(() => { p.textContent = \"answered\" })'>go</button>"
        "<script>window.start = () => { setInterval(() => fetch('/poll'), 50) }</script>"
    )
    await page.ask("start()")
    await page.ask("new Promise((done) => setTimeout(done, 400))")
    assert "<p>answered</p>" in (await page.click(0)).observation.text


async def test_a_count_down_does_not_slow_a_step(play):
    page = await play(
        "<p id='p'></p><button>go</button><script>let n = 1e6; (function down() { p.textContent = n--;"
        " new MessageChannel().port1.close(); setTimeout(down, 20) })()</script>",
        settle_timeout={"seconds": 2},  # which nothing here may take whole
    )
    assert (await page.click(0)).timings.quiet


@pytest.mark.slow
@pytest.mark.parametrize("delay", [20, 700])
async def test_a_count_down_that_an_action_begins_is_waited_for_a_second(play, delay):
    page = await play(
        "<p id='p'></p><button onclick='down()'>go</button>"
        f"<script>let n = 1e6; const down = () => {{ p.textContent = n--; setTimeout(down, {delay}) }}</script>"
    )
    response = await page.click(0)
    assert response.timings.quiet
    assert 0.5 < seconds(response.timings.settle) < 5


async def test_a_timer_that_every_action_begins_is_waited_for_every_time(play):
    page = await play(
        "<input id='i' oninput='clearTimeout(at); at = setTimeout(show, 300)'><p id='p'></p>"
        "<script>let at; const show = () => { p.textContent = i.value }</script>"
    )
    for word in ("one", "two"):
        await page.act(f'do(action="Type", argument="{word}", element="0")')
        assert f"<p>{word}</p>" in page.text
