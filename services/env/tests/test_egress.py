"""What pages can reach: names, the addresses behind them, and nothing else."""

import asyncio
import socket

import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2
from webagent_env.egress import Egress
from webagent_env.policy import Policy, entry, plain_address

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("text", "host", "port", "covered"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 8080, False),
        ("example.com:8080", "example.com", 8080, True),
        ("example.com:8080", "example.com", 80, False),
        ("*.example.com", "a.b.example.com", 80, True),
        ("*.example.com", "example.com", 80, False),
        ("*.example.com", "badexample.com", 80, False),
        ("*", "anything.org", 443, True),
        ("[::1]:80", "::1", 80, True),
    ],
)
async def test_an_entry_covers_a_host_and_a_port(text, host, port, covered):
    assert entry(text).covers(host, port) is covered


@pytest.mark.parametrize("text", ["", "a/b", "http://a", "a*b", "*.*", "user@a", "a:99999"])
async def test_what_is_no_entry_is_refused(text):
    with pytest.raises(ValueError, match=r"host|Port"):
        entry(text)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("::1", "::", "fe80::1", "fd00:ec2::254", "::ffff:127.0.0.1", "224.0.0.1"),
        *("64:ff9b::127.0.0.1", "64:ff9b:1::5db8:d822", "::10.1.2.3", "::ffff:0:10.1.2.3"),
        *("2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    ],
)
async def test_private_addresses_are_refused_behind_any_name(address):
    policy = Policy((), (entry("*"), entry("name.example")), asked_private=False)
    assert policy.address_refusal("name.example", 80, address)
    for public in ("93.184.216.34", "2606:4700::1", "64:ff9b::93.184.216.34", "2002:5db8:d822::1"):
        assert not policy.address_refusal("name.example", 80, public)


@pytest.mark.parametrize("address", ["64:ff9b::169.254.169.254", "2002:a9fe:a9fe::", "::169.254.169.254"])
async def test_a_metadata_address_within_another_is_one(address):
    policy = Policy((entry("sites.internal"), entry("*")))
    assert "metadata" in policy.address_refusal("sites.internal", 80, address)
    assert "metadata" in policy.refusal(f"[{address}]", 80)


async def test_a_session_may_name_private_hosts_where_the_operator_allows_it_but_never_metadata():
    policy = Policy((), (entry("10.0.0.7:8000"), entry("169.254.169.254"), entry("*")), asked_private=True)
    assert not policy.refusal("10.0.0.7", 8000)
    assert policy.refusal("10.0.0.8", 80)
    assert "metadata" in policy.refusal("169.254.169.254", 80)
    assert plain_address("[::ffff:7f00:1]") == plain_address("127.0.0.1")


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "fd00:ec2::254"])
async def test_a_metadata_address_is_reached_only_where_the_operator_names_that_very_address(address):
    named = entry(f"[{address}]:80" if ":" in address else address)
    policy = Policy((entry("sites.internal"), named))
    assert not policy.address_refusal(address, 80, address)
    assert policy.address_refusal(address, 8080, address)
    policy = Policy((entry("sites.internal"), entry("*")))
    assert "metadata" in policy.address_refusal("sites.internal", 80, address)
    assert not policy.address_refusal("sites.internal", 80, "10.0.0.1")


@pytest.fixture
def resolve(monkeypatch):
    """Names of tests, and what they resolve to at each asking."""
    names: dict[str, list[list[str]]] = {}
    real = asyncio.AbstractEventLoop.getaddrinfo
    loop = asyncio.get_event_loop()

    async def getaddrinfo(host, port, **options):
        if host not in names:
            return await real(loop, host, port, **options)
        answers = names[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    real = type(loop).getaddrinfo
    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    return names


async def ask(egress: Egress, head: str) -> bytes:
    """What the proxy answers to one request."""
    host, _, port = egress.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(65_536), 10)
    writer.close()
    return answer


async def test_a_name_that_turns_private_is_not_dialled(resolve):
    resolve["turning.example"] = [["93.184.216.34", "127.0.0.1"]]
    egress = Egress(Policy((), (entry("*"),)))
    await egress.start()
    try:
        answer = await ask(egress, "GET http://turning.example/ HTTP/1.1\r\nHost: turning.example")
        assert b" 403 " in answer.splitlines()[0]
        assert b"private address 127.0.0.1" in answer
        answer = await ask(egress, "CONNECT turning.example:443 HTTP/1.1\r\nHost: turning.example:443")
        assert b" 403 " in answer.splitlines()[0]
    finally:
        await egress.stop()


async def test_requests_over_one_connection_go_each_to_its_own_host(service):
    name = service.pages.write("<p>page</p>")
    own = service.pages.url.removeprefix("http://")
    other = own.replace("127.0.0.1", "localhost")
    egress = Egress(Policy((entry(own), entry(other))))
    await egress.start()
    host, _, port = egress.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for site in (own, other, own):
            writer.write(f"GET http://{site}/{name} HTTP/1.1\r\nHost: {site}\r\n\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            assert b" 200 " in head.splitlines()[0]
            size = next(int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"Content-Length"))
            assert b"page" in await reader.readexactly(size)
    finally:
        writer.close()
        await egress.stop()


async def private(service, seen: list[str]) -> str:
    """A private server beside the task's own, that no session may reach."""

    async def secret(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(text="secret", headers={"Access-Control-Allow-Origin": "*"})

    application = web.Application()
    application.router.add_route("*", "/{name:.*}", secret)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_pages_reach_their_own_site_and_no_private_one(play, service):
    seen: list[str] = []
    address = await private(service, seen)

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPFound(f"{address}/redirected")

    service.pages.handlers["redirect"] = redirect
    own = service.pages.write("own")
    page = await play(f"<a href='/redirect'>go</a><img src='{address}/image'><iframe src='{address}/frame'></iframe>")
    fetched = await page.ask(f"fetch('/{own}').then((r) => r.status)")
    assert fetched == "200"
    assert (
        "Error" in await page.ask(f"fetch('{address}/fetch', {{mode: 'no-cors'}}).then(() => 'ok', String)") or not seen
    )
    assert "is not among the hosts" in (await page.click(0)).observation.text
    socket_state = await page.ask(
        f"new Promise((done) => {{ const s = new WebSocket('{address.replace('http', 'ws')}/socket');"
        " s.onerror = () => done('refused'); s.onopen = () => done('open') })"
    )
    assert socket_state == '"refused"'
    assert seen == []


async def test_a_service_worker_reaches_no_private_site(play, service):
    seen: list[str] = []
    address = await private(service, seen)

    async def worker(_: web.Request) -> web.Response:
        text = f"self.addEventListener('install', (e) => e.waitUntil(fetch('{address}/worker', {{mode: 'no-cors'}})))"
        return web.Response(text=text, content_type="text/javascript")

    service.pages.handlers["worker.js"] = worker
    page = await play("<p>page</p>")
    state = await page.ask(
        "navigator.serviceWorker.register('/worker.js').then((r) => new Promise((done) => {"
        " const w = r.installing ?? r.waiting ?? r.active; const tell = () => done(w.state);"
        " w.state === 'installing' ? w.onstatechange = tell : tell() }))"
    )
    assert state in ('"installed"', '"redundant"', '"activating"', '"activated"')
    assert seen == []


async def test_a_session_may_ask_for_public_hosts_and_not_for_loopback(play, service):
    page = await play("<p>here</p>", allow_goto=True, allowed_hosts=["127.0.0.1:1"])
    response = await page.act('do(action="Goto", argument="http://127.0.0.1:1/")')
    assert response.result.reason == env_pb2.ACTION_REASON_NOT_ALLOWED
    assert "private address" in response.result.message
