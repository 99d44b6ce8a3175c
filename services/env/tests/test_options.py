"""What a session may ask of its browser context, and that none sees another's."""

import json

import grpc.aio
import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

COOKIE = {"name": "login", "value": "ann", "domain": "127.0.0.1", "path": "/"}


async def test_a_session_has_the_place_language_and_time_that_it_asked_for(play):
    page = await play(
        "<p>x</p>",
        viewport_width=500,
        viewport_height=200,
        locale="de-DE",
        timezone="Asia/Tokyo",
        geolocation=env_pb2.Geolocation(latitude=48.5, longitude=9.25, accuracy=10),
    )
    seen = await page.ask(
        "new Promise((done) => navigator.geolocation.getCurrentPosition(({coords}) => done([innerWidth, innerHeight,"
        " navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone, coords.latitude, coords.longitude])))"
    )
    # Geolocation needs a secure origin, which a loopback address is.
    assert json.loads(seen) == [500, 200, "de-DE", "Asia/Tokyo", 48.5, 9.25]


async def test_a_session_starts_with_the_storage_and_headers_that_it_brings(play, service):
    async def echo(request):
        return web.Response(text=f"{request.headers.get('X-Who')} {request.cookies.get('login')}")

    service.pages.handlers["echo"] = echo
    state = {
        "cookies": [{**COOKIE, "expires": -1, "httpOnly": False, "secure": False, "sameSite": "Lax"}],
        "origins": [{"origin": service.pages.url, "localStorage": [{"name": "theme", "value": "dark"}]}],
    }
    page = await play("<p>x</p>", storage_state_json=json.dumps(state), extra_headers={"X-Who": "tester"})
    assert await page.ask("fetch('/echo').then((r) => r.text())") == '"tester ann"'
    assert await page.ask("localStorage.getItem('theme')") == '"dark"'


async def test_a_session_says_how_dialogs_are_answered(play):
    html = "<button onclick='document.title = [confirm(1), prompt(2, 3)]'>ask</button>"
    page = await play(html, dialogs=env_pb2.DIALOG_POLICY_DISMISS)
    response = await page.click(0)
    assert response.observation.title == "false,"
    assert [dialog.accepted for dialog in response.observation.dialogs] == [False, False]
    page = await play(html, dialogs=env_pb2.DIALOG_POLICY_ACCEPT, prompt_text="given")
    assert (await page.click(0)).observation.title == "true,given"


BAD_COOKIES = [
    {"name": "login", "value": "ann"},
    {"name": "login", "value": "ann", "domain": "127.0.0.1"},
    {**COOKIE, "value": 1},
    {**COOKIE, "url": "http://127.0.0.1/"},
    {"name": "login", "value": "ann", "url": "about:blank"},
    {**COOKIE, "sameSite": "lax"},
    {**COOKIE, "expires": "tomorrow"},
    {**COOKIE, "expires": -5},
    {**COOKIE, "secure": "yes"},
    {**COOKIE, "value": "a;b"},
    {**COOKIE, "domain": ""},
    {**COOKIE, "path": "elsewhere"},
    {**COOKIE, "expires": 1e30},
    {**COOKIE, "name": "__Host-login", "domain": ".127.0.0.1"},
]
BAD_ORIGINS = [
    {"localStorage": []},
    {"origin": "nowhere", "localStorage": []},
    {"origin": "http://127.0.0.1:99999", "localStorage": []},
    {"origin": "http://127.0.0.1", "localStorage": {}},
    {"origin": "http://127.0.0.1", "localStorage": [{"name": "theme"}]},
    {"origin": "http://127.0.0.1", "localStorage": [{"name": "theme", "value": 3}]},
]


@pytest.mark.parametrize(
    "options",
    [
        {"locale": "not a locale"},
        {"timezone": "Mars/Olympus"},
        {"viewport_width": 3841, "viewport_height": 2160},
        {"geolocation": env_pb2.Geolocation(latitude=91)},
        {"storage_state_json": "{"},
        {"storage_state_json": "[]"},
        *({"storage_state_json": json.dumps({"cookies": [cookie]})} for cookie in BAD_COOKIES),
        *({"storage_state_json": json.dumps({"origins": [origin]})} for origin in BAD_ORIGINS),
        {"extra_headers": {"Host": "evil"}},
        {"extra_headers": {"X-A": "a\r\nX-B: b"}},
        {"allowed_hosts": ["http://example.com"]},
    ],
)
async def test_an_option_that_cannot_be_is_refused_by_name(play, reason, options):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await play("<p>x</p>", **options)
    assert reason(error.value) == "INVALID_REQUEST"
    assert f"options.{next(iter(options))}" in error.value.details()


async def test_a_storage_state_is_refused_with_the_place_that_is_wrong(play):
    state = {"cookies": [COOKIE, {**COOKIE, "sameSite": "lax"}]}
    with pytest.raises(grpc.aio.AioRpcError, match=r"cookies\.1\.sameSite: .*'Lax'"):
        await play("<p>x</p>", storage_state_json=json.dumps(state))


async def test_nothing_of_a_session_is_there_in_the_next(play, service):
    async def worker(_):
        return web.Response(text="self.onfetch = () => {}", content_type="text/javascript")

    count = 0

    async def cached(_):
        nonlocal count
        count += 1
        return web.Response(text=str(count), headers={"Cache-Control": "max-age=999"})

    service.pages.handlers["sw.js"] = worker
    service.pages.handlers["cached"] = cached
    write = """(async () => {
      document.cookie = 'a=1; max-age=999';
      localStorage.setItem('a', '1');
      sessionStorage.setItem('a', '1');
      window.name = 'a';
      await new Promise((done) => { const r = indexedDB.open('a', 1); r.onsuccess = done; r.onerror = done });
      await (await caches.open('a')).put('/x', new Response('1'));
      await navigator.serviceWorker.register('/sw.js');
      return 1;
    })()"""
    read = """(async () => [document.cookie, localStorage.length, sessionStorage.length, window.name,
      (await indexedDB.databases()).length, (await caches.keys()).length,
      (await navigator.serviceWorker.getRegistrations()).length,
      (await navigator.permissions.query({name: 'geolocation'})).state,
      await (await fetch('/cached')).text()])()"""
    first = await play("<p>x</p>", geolocation=env_pb2.Geolocation(latitude=1))
    assert await first.ask(write) == "1"
    for _ in range(2):
        assert json.loads(await first.ask(read)) == ["a=1", 1, 1, "a", 1, 1, 1, "granted", "1"]
    second = await play("<p>x</p>")
    assert json.loads(await second.ask(read)) == ["", 0, 0, "", 0, 0, 0, "prompt", "2"]
