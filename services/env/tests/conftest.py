"""A real service in this process: gRPC on a free port, one Chromium, MiniWoB, and a suite of pages written by tests."""

import itertools
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from aiohttp import web
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2, probe_pb2_grpc
from webagent_env.browser import Browser
from webagent_env.config import EnvConfig, SessionsConfig
from webagent_env.context import SessionContext
from webagent_env.leftovers import InstanceDirectory
from webagent_env.miniwob import MiniWob
from webagent_env.pool import SessionPool
from webagent_env.probe_servicer import ProbeServicer
from webagent_env.servicer import EnvironmentServicer
from webagent_env.tasks import Claim, NativeRule, Suite, Task
from webagent_runtime.client import open_channel
from webagent_runtime.config import ServerConfig
from webagent_runtime.server import Server

TIMEOUT = 30.0


class Pages:
    """A suite whose tasks are whatever pages a test writes."""

    name = "pages"
    viewport = (400, 300)
    ended = "() => window.ended === true"
    hidden: tuple[str, ...] = ()
    init_script = "window.prepared = true"
    centres_only = False
    reuses_contexts = False

    def __init__(self) -> None:
        self._pages: dict[str, str] = {}
        self._count = itertools.count()
        self._runner: web.AppRunner | None = None
        self.handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {}
        self.url = ""

    def write(self, html: str, name: str | None = None) -> str:
        name = name or f"page-{next(self._count)}"
        self._pages[name] = html if "<html" in html else f"<!DOCTYPE html><html><body>{html}</body></html>"
        return name

    async def start(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{name}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def tasks(self) -> list[Task]:
        return [Task(self.name, name, site="test") for name in self._pages]

    @property
    def origin(self) -> str:
        return self.url

    def hosts(self, task: Task) -> tuple[str, ...]:
        own = self.url.removeprefix("http://")
        return own, own.replace("127.0.0.1", "localhost")

    async def claim(self, task: Task, browser: Browser) -> Claim:
        return Claim()

    async def reset(self, context: SessionContext, task: Task, seed: int, claim: Claim) -> str:
        tab = await context.active()
        await tab.page.goto(f"{self.url}/{task.task_id}", wait_until="load")
        return f"Look at {task.task_id}."

    def rule(self, task: Task, seed: int) -> NativeRule:
        return NativeRule("({done: window.ended === true, reward: 1})", 0.5)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name in self.handlers:
            return await self.handlers[name](request)
        if name not in self._pages:
            raise web.HTTPNotFound
        return web.Response(text=self._pages[name], content_type="text/html")


class ReusedPages(Pages):
    """The same, in contexts that serve one session after another."""

    name = "reused"
    reuses_contexts = True


@pytest.fixture
def reused_pages() -> ReusedPages:
    """A suite for `make_service(limits, suites=[...])`."""
    return ReusedPages()


@dataclass
class Service:
    """The running service and its stubs."""

    pool: SessionPool
    pages: Pages
    address: str
    environment: Any
    probes: Any


async def start_service(
    directory: Path, sessions: SessionsConfig, suites: Sequence[Suite] = (), **config: Any
) -> AsyncIterator[Service]:
    config = EnvConfig(server=ServerConfig(port=0), sessions=sessions, state_directory=directory, **config)
    instance = InstanceDirectory(config.state_directory)
    pages = Pages()
    pool = SessionPool(config, instance, [MiniWob(), pages, *suites])
    server = Server(config.server, name="env", version="test")
    servicer = EnvironmentServicer(pool, config.sessions, lambda: server.address)
    server.add(
        env_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        servicer,
        service="webagent.env.v1.EnvironmentService",
        scope="env",
    )
    server.add(
        probe_pb2_grpc.add_ProbeServiceServicer_to_server,
        ProbeServicer(pool, config.sessions.probe_timeout_seconds),
        service="webagent.env.v1.ProbeService",
        scope="env.probe",
    )
    try:
        await server.start()
        await pool.start()
        async with open_channel(server.address) as channel:
            environment = env_pb2_grpc.EnvironmentServiceStub(channel)
            probes = probe_pb2_grpc.ProbeServiceStub(channel)
            yield Service(pool, pages, server.address, environment, probes)
    finally:
        await pool.stop()
        await server.stop(1.0)
        instance.remove()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """One service for all tests that need none of their own."""
    limits = SessionsConfig(capacity=8, settle_timeout_seconds=10)
    async for running in start_service(tmp_path_factory.mktemp("state"), limits):
        yield running


@pytest.fixture
def make_service(tmp_path: Path) -> Callable[..., AsyncIterator[Service]]:
    """A service with limits of its own: `async for service in make_service(limits): ...`."""
    return lambda limits, **options: start_service(tmp_path, limits, **options)


class Play:
    """One session, played by a test."""

    def __init__(self, service: Service, session_id: str, opened: env_pb2.CreateSessionResponse) -> None:
        self.service = service
        self.session_id = session_id
        self.opened = opened
        self.text = opened.observation.text
        self.index = 0

    async def act(self, action: str) -> env_pb2.StepResponse:
        """Takes the next step."""
        request = env_pb2.StepRequest(session_id=self.session_id, step_index=self.index, action_text=action)
        response: env_pb2.StepResponse = await self.service.environment.Step(request, timeout=TIMEOUT)
        self.index += 1
        self.text = response.observation.text
        return response

    async def click(self, element: int) -> env_pb2.StepResponse:
        return await self.act(f'do(action="Click", element="{element}")')

    async def observe(self, *kinds: env_pb2.ObservationKind.ValueType) -> env_pb2.Observation:
        request = env_pb2.ObserveRequest(session_id=self.session_id, observations=kinds)
        response: env_pb2.ObserveResponse = await self.service.environment.Observe(request, timeout=TIMEOUT)
        return response.observation

    async def ask(self, javascript: str, url: str = "") -> str:
        """A probe's value, as JSON."""
        request = probe_pb2.ProbeRequest(session_id=self.session_id, javascript=javascript, url=url)
        response: probe_pb2.ProbeResponse = await self.service.probes.Probe(request, timeout=TIMEOUT)
        return response.value_json


Opener = Callable[..., Awaitable[Play]]


async def open_on(
    service: Service,
    html: str = "",
    *,
    task: str = "",
    suite: str = "miniwob",
    seed: int = 0,
    bbox: bool = False,
    name: str = "",
    **options: Any,
) -> Play:
    """Opens a session on a page or a task, which is MiniWoB's unless it is said to be another suite's."""
    suite, task_id = (suite, task) if task else ("pages", service.pages.write(html))
    if not bbox:
        options.setdefault("omit_attributes", ["data-bbox"])
    session_id = name or f"test-{next(_numbers)}-{task_id}"
    request = env_pb2.CreateSessionRequest(
        session_id=session_id,
        task=env_pb2.TaskRef(suite=suite, task_id=task_id),
        seed=seed,
        options=env_pb2.SessionOptions(**options),
    )
    return Play(service, session_id, await service.environment.CreateSession(request, timeout=TIMEOUT))


_numbers = itertools.count()


@pytest.fixture
def open_play() -> Opener:
    """Opens a session of a service that the test made itself."""
    return open_on


@pytest_asyncio.fixture(loop_scope="session")
async def play(service: Service) -> AsyncIterator[Opener]:
    """Opens a session of the shared service; all are closed after the test."""
    opened: list[Play] = []

    async def open_session(html: str = "", **options: Any) -> Play:
        opened.append(await open_on(service, html, **options))
        return opened[-1]

    yield open_session
    for each in opened:
        await service.environment.CloseSession(env_pb2.CloseSessionRequest(session_id=each.session_id), timeout=TIMEOUT)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The stable reason of a refused call."""
    from webagent_runtime.errors import from_rpc

    return from_rpc(error).reason


@pytest.fixture
def reason() -> Callable[[grpc.aio.AioRpcError], str]:
    return reason_of


def _pip(*arguments: str) -> None:
    """Runs pip; a machine that reaches no package index has none of these tests."""
    options = ("--disable-pip-version-check", "-q", "--progress-bar", "off", "--no-deps")
    command = [*arguments[:1], "-m", "pip", "install", *options, *arguments[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if "No matching distribution" in ended.stderr or "Could not find a version" in ended.stderr:
        pytest.skip(f"no package index: {ended.stderr.strip().splitlines()[-1]}")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def install_files() -> Callable[..., None]:
    """Puts packages, without what they require, into a directory."""
    return lambda directory, *packages: _pip(sys.executable, "--target", str(directory), *packages)


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Makes an environment with a package, without what it requires, and others with; returns its Python."""

    def make(alone: str, *others: str) -> str:
        directory = tmp_path_factory.mktemp("environment")
        venv.create(directory, with_pip=True)
        python = str(directory / "bin" / "python")
        _pip(python, alone)
        subprocess.run([python, "-m", "pip", "install", "-q", *others], check=True, timeout=600)
        return python

    return make
