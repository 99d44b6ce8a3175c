"""Suites on web sites: task files, logins, limits, health and resets."""

import asyncio
import json
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from aiohttp import web
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2
from webagent_env.config import SessionsConfig, SuitesConfig
from webagent_env.sites import Site
from webagent_env.suites import make_suites
from webagent_env.task_files import load_own, load_webarena
from webagent_env.webarena_config import SiteConfig, WebArenaConfig
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOGIN = {"path": "/login", "username_field": "#name", "password_field": "#word", "check_path": "/account"}
FORM = (
    "<form method=post><input id=name name=name><input id=word name=word type=password><button>Sign in</button></form>"
)


class Shop:
    """A site with accounts, that can be broken."""

    def __init__(self) -> None:
        self.signed_in: set[str] = set()
        self.logins = 0
        self.form = FORM
        self.resets = 0
        self.reset_status = 200
        self.unwell = 0  # so often yet does it say so
        self.status = 200
        self.broken = ""  # the path that answers with that status; empty: all
        self.refuses = False
        self.resetting: asyncio.Event | None = None
        self.url = ""
        self.runner = web.AppRunner(self.application(), shutdown_timeout=0.1)

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.serve)
        return application

    async def serve(self, request: web.Request) -> web.Response:
        user = request.cookies.get("user", "")
        if self.resets and self.unwell:
            self.unwell -= 1
            return web.Response(status=502)
        if request.path == "/reset":
            self.resets += 1
            if self.resetting is not None:
                await self.resetting.wait()
            return web.Response(status=self.reset_status)
        if request.path == "/login" and request.method == "POST":
            self.logins += 1
            name = f"{(await request.post())['name']}-{self.logins}"
            if self.refuses:
                raise web.HTTPFound("/login")
            self.signed_in.add(name)
            raise web.HTTPFound("/account", headers={"Set-Cookie": f"user={name}; Path=/"})
        if request.path == "/login":
            return web.Response(text=self.form, content_type="text/html")
        if request.path == "/account" and user not in self.signed_in:
            raise web.HTTPFound("/login")
        if request.path == "/signout":
            self.signed_in.discard(user)
        status = self.status if self.broken in {"", request.path} else 200
        text = f"<title>{request.path}</title><p>{user or 'nobody'}</p><a href='/signout'>out</a>"
        return web.Response(text=text, content_type="text/html", status=status)


@pytest_asyncio.fixture(loop_scope="session")
async def shop() -> AsyncIterator[Shop]:
    site = Shop()
    await site.runner.setup()
    await web.TCPSite(site.runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{site.runner.addresses[0][1]}"
    yield site
    await site.runner.cleanup()


def entry(number: int, start: str, kind: str = "string_match", **more) -> dict:
    return {
        "sites": ["shopping"],
        "task_id": number,
        "start_url": start,
        "intent": f"Do {number}",
        "require_reset": False,
        "eval": {"eval_types": [kind], "reference_url": "__SHOPPING__/x", "reference_answers": {"exact_match": "1"}},
        **more,
    }


@pytest.fixture
def arena(shop, tmp_path):
    """A suite on that site, in WebArena's format."""

    def make(**site):
        file = tmp_path / "tasks.json"
        two = "__SHOPPING__/one |AND| __SHOPPING__/two"
        elsewhere = {"sites": ["map"], "intent": "x", "start_url": "__MAP__", "task_id": 9, "eval": {"eval_types": []}}
        entries = [entry(0, "__SHOPPING__"), entry(1, two), entry(2, "__SHOPPING__", "program_html"), elsewhere]
        file.write_text(json.dumps(entries))
        settings = {"url": shop.url, "username": "ann", "password": "x", "login": LOGIN, **site}
        return load_webarena(
            WebArenaConfig.model_validate({"name": "arena", "tasks": str(file), "sites": {"shopping": settings}})
        )

    return make


async def create(service, number: int, name: str) -> env_pb2.CreateSessionResponse:
    task = env_pb2.TaskRef(suite="arena", task_id=str(number))
    options = env_pb2.SessionOptions(omit_attributes=["data-bbox"])
    request = env_pb2.CreateSessionRequest(session_id=name, task=task, options=options)
    return await service.environment.CreateSession(request, timeout=90)


async def close(service, name: str) -> None:
    await service.environment.CloseSession(env_pb2.CloseSessionRequest(session_id=name), timeout=30)


async def refused(call, reason) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return reason(error.value)


async def test_a_task_opens_its_pages_signed_in_and_gives_its_rule(make_service, arena):
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena()]):
        listed = await service.environment.ListTasks(env_pb2.ListTasksRequest(suite="arena"), timeout=30)
        assert [(each.task.task_id, each.site) for each in listed.tasks] == [(str(n), "shopping") for n in range(3)]
        opened = await create(service, 1, "s")
        assert opened.instruction == "Do 1"
        assert [(tab.title, tab.active) for tab in opened.observation.tabs] == [("/one", True), ("/two", False)]
        assert "<p>ann-1</p>" in opened.observation.text
        asked = await service.probes.GetTaskRule(probe_pb2.GetTaskRuleRequest(session_id="s"), timeout=30)
        rule = asked.rule.webarena
        assert json.loads(rule.eval_json)["reference_url"] == rule.site_urls["__SHOPPING__"] + "/x"
        assert (rule.intent, rule.dialect) == ("Do 1", probe_pb2.WEB_ARENA_DIALECT_VAB_LITE)


async def test_the_page_of_a_login_reaches_the_site_s_hosts_alone(make_service, arena, shop):
    seen: list[str] = []

    async def secret(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response()

    elsewhere = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    elsewhere.app.router.add_get("/{path:.*}", secret)
    await elsewhere.setup()
    await web.TCPSite(elsewhere, "127.0.0.1", 0).start()
    shop.form += f"<img src='http://127.0.0.1:{elsewhere.addresses[0][1]}/picture'>"
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena()]):
        assert "<p>ann-1</p>" in (await create(service, 0, "s")).observation.text
    await elsewhere.cleanup()
    assert seen == []


@pytest.mark.slow
async def test_a_login_serves_one_session_at_a_time_and_is_renewed_when_stale(make_service, arena, shop):
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena()]):
        assert "ann-1" in (await create(service, 0, "a")).observation.text
        assert "ann-2" in (await create(service, 0, "b")).observation.text
        await close(service, "a")
        assert "ann-1" in (await create(service, 0, "c")).observation.text
        request = env_pb2.StepRequest(session_id="c", action_text='do(action="Click", element="0")')
        await service.environment.Step(request, timeout=30)
        assert "ann-1" not in shop.signed_in
        await close(service, "c")
        assert "ann-3" in (await create(service, 0, "d")).observation.text


@pytest.mark.slow
async def test_a_site_that_is_broken_makes_no_session(make_service, arena, shop, reason):
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena()]):
        shop.status = 503
        assert await refused(create(service, 0, "a"), reason) == "SITE_UNAVAILABLE"
        shop.broken = "/one"
        assert await refused(create(service, 1, "a"), reason) == "SITE_UNAVAILABLE"
        shop.status, shop.refuses, shop.logins = 200, True, 0
        shop.signed_in.clear()
        async with grpc.aio.insecure_channel(service.address) as channel:  # which does not try again by itself
            request = env_pb2.CreateSessionRequest(session_id="b", task=env_pb2.TaskRef(suite="arena", task_id="0"))
            call = env_pb2_grpc.EnvironmentServiceStub(channel).CreateSession(request, timeout=90)
            assert await refused(call, reason) == "SITE_UNAVAILABLE"
        assert shop.logins == 2
        shop.refuses = False
        assert (await create(service, 0, "a")).session.session_id == "a"


async def click_out(service, name: str, index: int) -> env_pb2.StepResponse:
    step = env_pb2.StepRequest(session_id=name, step_index=index, action_text='do(action="Click", element="0")')
    return await service.environment.Step(step, timeout=60)


async def test_a_site_that_goes_down_ends_its_sessions_and_an_error_of_a_site_that_is_well_none(
    make_service, arena, shop, reason
):
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena()]):
        for name in ("answering", "gone"):
            await create(service, 0, name)
            shop.status, shop.broken = 500, "/signout"
            assert (await click_out(service, name, 0)).observation.title == "/signout"
            if name == "answering":
                shop.status, shop.broken = 503, ""
            else:
                await shop.runner.cleanup()
            assert await refused(click_out(service, name, 1), reason) == "SITE_UNAVAILABLE"
            asked = service.probes.Probe(probe_pb2.ProbeRequest(session_id=name, javascript="1"), timeout=30)
            assert await refused(asked, reason) == "SITE_UNAVAILABLE"
            shop.status = 200


@pytest.mark.slow
async def test_a_site_that_cannot_be_reached_makes_no_session(make_service, arena, reason):
    async for service in make_service(SessionsConfig(), suites=[arena(url="http://127.0.0.1:1")]):
        assert await refused(create(service, 0, "a"), reason) == "SITE_UNAVAILABLE"


@pytest.mark.slow
async def test_a_site_bears_so_many_sessions_and_one_that_changes_it(make_service, arena, reason):
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[arena(max_sessions=2)]):
        await create(service, 2, "changing")
        assert await refused(create(service, 2, "second"), reason) == "SITE_BUSY"
        await create(service, 0, "reading")
        assert await refused(create(service, 0, "third"), reason) == "SITE_BUSY"
        await close(service, "changing")
        await create(service, 2, "second")


@pytest.mark.slow
async def test_a_site_is_reset_after_a_task_that_changes_it(make_service, arena, shop, reason):
    shop.resetting = asyncio.Event()
    suite = arena(reset_url=f"{shop.url}/reset")
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[suite]):
        await create(service, 0, "a")
        await close(service, "a")
        assert shop.resets == 0
        await create(service, 2, "b")
        await close(service, "b")
        assert await refused(create(service, 0, "c"), reason) == "SITE_BUSY"
        shop.resetting.set()
        await suite.resets()
        await create(service, 0, "c")
        assert shop.resets == 1


@pytest.fixture
def resettable(shop):
    def make(**settings):
        config = {"url": shop.url, "reset_url": f"{shop.url}/reset", "reset_timeout_seconds": 30.0, **settings}
        return Site("shop", SiteConfig.model_validate(config))

    return make


def says(site: Site) -> str:
    """Why the site takes no session."""
    with pytest.raises(ServiceError) as refusal:
        site.enter(changes=False)
    return refusal.value.reason


async def test_a_reset_waits_for_the_last_session_and_for_the_site_to_be_well(resettable, shop):
    site = resettable()
    site.enter(changes=True)
    site.enter(changes=False)
    site.leave(changes=True, played=True)
    assert says(site) == "SITE_BUSY"
    assert site.resetting is None
    shop.unwell = 2
    site.leave(changes=False, played=True)
    assert says(site) == "SITE_BUSY"
    await site.resetting
    assert (shop.resets, shop.unwell) == (1, 0)
    site.enter(changes=True)
    site.leave(changes=True, played=False)
    assert shop.resets == 1
    site.enter(changes=False)


async def test_a_site_whose_reset_failed_stays_closed_until_one_succeeds(resettable, shop):
    site = resettable(reset_timeout_seconds=3.0)
    site.enter(changes=True)
    shop.reset_status = 500
    site.leave(changes=True, played=True)
    await site.resetting
    assert says(site) == "SITE_UNAVAILABLE"
    await site.resetting
    shop.reset_status, shop.status = 200, 503
    assert says(site) == "SITE_UNAVAILABLE"
    await site.resetting  # it was not well in time
    shop.status = 200
    assert says(site) == "SITE_UNAVAILABLE"
    await site.resetting
    site.enter(changes=False)
    assert shop.resets == 4


async def test_a_file_with_start_addresses_is_a_suite(make_service, shop, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        f"suite: own\nsites:\n  shop: {{url: '{shop.url}'}}\ntasks:\n"
        "  - {id: look, site: shop, start_url: /shelf, instruction: Look., success: document.title === '/signout'}\n"
        f"  - {{id: whole, start_url: '{shop.url}/whole', instruction: Look too.}}\n"
    )
    async for service in make_service(SessionsConfig(reset_timeout_seconds=90), suites=[load_own(file)]):
        task = env_pb2.TaskRef(suite="own", task_id="look")
        opened = await service.environment.CreateSession(
            env_pb2.CreateSessionRequest(session_id="s", task=task), timeout=30
        )
        assert (opened.instruction, opened.observation.title) == ("Look.", "/shelf")
        rule = (await service.probes.GetTaskRule(probe_pb2.GetTaskRuleRequest(session_id="s"), timeout=30)).rule
        asked = probe_pb2.ProbeRequest(session_id="s", javascript=rule.native.reward_javascript)
        assert json.loads((await service.probes.Probe(asked, timeout=30)).value_json) == {"done": False, "reward": 0}
        step = env_pb2.StepRequest(session_id="s", action_text='do(action="Click", element="0")')
        await service.environment.Step(step, timeout=30)
        assert json.loads((await service.probes.Probe(asked, timeout=30)).value_json) == {"done": True, "reward": 1}
        task = env_pb2.TaskRef(suite="own", task_id="whole")
        request = env_pb2.CreateSessionRequest(session_id="t", task=task)
        assert (await service.environment.CreateSession(request, timeout=30)).observation.title == "/whole"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suite: a", "tasks"),
        ("suite: a\ntasks: [{id: x, instruction: y, start_url: /z}]", "no http address"),
        ("suite: a\ntasks: [{id: x, instruction: y, site: b}]", "no site 'b'"),
        ("suite: [", "own.yaml"),
    ],
)
async def test_a_file_that_is_no_suite_says_why(tmp_path, text, said):
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_own(file)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://Shop.internal:80/", "http://shop.internal"),
        ("HTTPS://shop.internal:443/Admin/", "https://shop.internal/Admin"),
        ("http://shop.internal:443", "http://shop.internal:443"),
        ("http://[FD00::80]:7770", "http://[fd00::80]:7770"),
    ],
)
async def test_a_site_s_address_is_written_as_browsers_say_it(given, url):
    assert SiteConfig.model_validate({"url": given}).url == url


async def test_names_of_suites_are_unique(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("suite: miniwob\ntasks: [{id: x, instruction: y, start_url: 'http://a'}]")
    with pytest.raises(ConfigError, match="miniwob is there twice"):
        make_suites(SuitesConfig(files=(file,)))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_published_lists_are_read_where_they_are_installed(tmp_path, monkeypatch, install_files):
    await asyncio.to_thread(install_files, tmp_path, "libwebarena", "browsergym-webarenalite")
    monkeypatch.syspath_prepend(str(tmp_path))
    sites = {name: {"url": f"http://{name.replace('_', '-')}.test"} for name in
             ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia")}  # fmt: skip
    for name, count in (("webarena-lite", 165), ("webarena", 812)):
        suite = load_webarena(WebArenaConfig.model_validate({"name": name, "tasks": name, "sites": sites}))
        assert len(suite.tasks()) == count
        assert not any("__SHOPPING" in rule.eval_json for task in suite.tasks() if (rule := suite.rule(task, 0)))
