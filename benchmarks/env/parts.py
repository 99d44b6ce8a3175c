"""What the benchmarks of env share: the service in this process, bare Playwright pages, and BrowserGym beside them.

BrowserGym runs in an environment of its own, made below .cache/ the first time, and is asked over a pipe, so that its
steps can alternate with ours and both see the same machine. It drives the same Chromium and is given the same pages.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog
from playwright.async_api import Browser, Page, Playwright, async_playwright
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2_grpc
from webagent_env.browser import FLAGS, find_executable
from webagent_env.cdp import world_script
from webagent_env.config import EnvConfig, SessionsConfig
from webagent_env.leftovers import InstanceDirectory
from webagent_env.miniwob import MiniWob
from webagent_env.pool import SessionPool
from webagent_env.probe_servicer import ProbeServicer
from webagent_env.servicer import EnvironmentServicer
from webagent_env.tasks import Suite
from webagent_runtime.client import open_channel
from webagent_runtime.config import ServerConfig
from webagent_runtime.server import Server

TIMEOUT = 300.0
ROOT = Path(__file__).parents[2]
BROWSERGYM = ("browsergym-core==0.14.3", "browsergym-miniwob==0.14.3")
OPTIONS = json.dumps(
    {
        "maxBytes": 262_144,
        "omitAttributes": [],
        "hidden": list(MiniWob.hidden),
        "text": True,
        "axtree": False,
        "boxes": False,
        "centresOnly": True,
    }
)
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
POINT = "() => { const r = document.querySelector('#area input').getBoundingClientRect(); return [r.x + 5, r.y + 5] }"


# Standard output is for the figures.
structlog.configure(
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
)


# ---- this service ------------------------------------------------------------------------------------------------
@dataclass
class Service:
    """The running service: its stub, its pool, and the address of its MiniWoB pages."""

    env: Any
    pool: SessionPool
    origin: str
    address: str


@asynccontextmanager
async def serving(sessions: SessionsConfig, suites: Sequence[Suite] = ()) -> AsyncIterator[Service]:
    """The real service on a free port."""
    with tempfile.TemporaryDirectory(prefix="env-") as directory:
        config = EnvConfig(server=ServerConfig(port=0), state_directory=Path(directory), sessions=sessions)
        instance = InstanceDirectory(config.state_directory)
        miniwob = MiniWob()
        pool = SessionPool(config, instance, [miniwob, *suites])
        server = Server(config.server, name="env", version="benchmark")
        environment = EnvironmentServicer(pool, config.sessions, lambda: server.address)
        name = "webagent.env.v1.EnvironmentService"
        server.add(env_pb2_grpc.add_EnvironmentServiceServicer_to_server, environment, service=name, scope="env")
        probe, name = ProbeServicer(pool, TIMEOUT), "webagent.env.v1.ProbeService"
        server.add(probe_pb2_grpc.add_ProbeServiceServicer_to_server, probe, service=name, scope="env.probe")
        await server.start()
        try:
            await pool.start()
            async with open_channel(server.address) as channel:
                stub = env_pb2_grpc.EnvironmentServiceStub(channel)
                yield Service(stub, pool, miniwob.origin, server.address)
        finally:
            await pool.stop()
            await server.stop(1.0)
            instance.remove()


class Served:
    """One session of the service."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.index = 0

    async def open(self, task: str, seed: int) -> None:
        """Opens the session."""
        suite, _, task_id = task.partition("/")
        request = env_pb2.CreateSessionRequest(
            session_id=self.name, task=env_pb2.TaskRef(suite=suite, task_id=task_id), seed=seed
        )
        await self.service.env.CreateSession(request, timeout=TIMEOUT)

    async def step(self) -> None:
        """Clicks the first element."""
        request = env_pb2.StepRequest(session_id=self.name, step_index=self.index)
        request.action.click.element = "0"
        answer = await self.service.env.Step(request, timeout=TIMEOUT)
        if answer.result.status != env_pb2.ACTION_STATUS_OK:
            raise RuntimeError(answer.result.message)
        self.index += 1

    async def close(self) -> None:
        """Closes the session."""
        await self.service.env.CloseSession(env_pb2.CloseSessionRequest(session_id=self.name), timeout=TIMEOUT)


# ---- Playwright alone --------------------------------------------------------------------------------------------
def program(playwright: Playwright) -> Path:
    """The Chromium that all sides drive."""
    return find_executable(None, Path(playwright.chromium.executable_path))


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser of Playwright's, started as the service starts its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(playwright), args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class Bare:
    """One page driven by Playwright alone."""

    def __init__(self, browser: Browser, origin: str) -> None:
        self._browser = browser
        self._origin = origin
        self.page: Page

    async def open(self, task: str, seed: int) -> None:
        """Opens a MiniWoB page and puts the reading script into it."""
        context = await self._browser.new_context(viewport={"width": 160, "height": 210})
        self.page = await context.new_page()
        await self.page.goto(f"{self._origin}/miniwob/{task.partition('/')[2]}.html")
        await self.page.evaluate(f"Math.seedrandom({seed}); core.EPISODE_MAX_TIME = 2e9; core.startEpisodeReal()")
        await self.page.evaluate(world_script())

    async def step(self) -> None:
        """Finds, clicks, waits for two frames, reads."""
        x, y = await self.page.evaluate(POINT)
        await self.page.mouse.click(x, y)
        await self.page.evaluate(TWO_FRAMES)
        await self.page.evaluate(f"webagent.observe({OPTIONS})")

    async def close(self) -> None:
        """Closes the page's context."""
        await self.page.context.close()


# ---- BrowserGym --------------------------------------------------------------------------------------------------
def peer(*packages: str) -> Path:
    """The Python of an environment that has these packages; made when it is missing."""
    place = ROOT / ".cache" / "peers" / hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        sys.stderr.write(f"installing {', '.join(packages)} into {place}\n")
        venv.create(place, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--progress-bar", "off"]
        subprocess.run([*pip, *packages], check=True)
        (place / "complete").touch()
    return python


class BrowserGym:
    """One BrowserGym process, asked over a pipe (see browsergym_side.py)."""

    def __init__(self, miniwob: str = "http://127.0.0.1:1/") -> None:
        self._miniwob = miniwob
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        python = await asyncio.to_thread(peer, *BROWSERGYM)
        async with async_playwright() as playwright:
            chosen = str(program(playwright))
        self._process = await asyncio.create_subprocess_exec(
            *(str(python), str(Path(__file__).parent / "browsergym_side.py"), chosen),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**26,
            env={**_plain_environment(), "MINIWOB_URL": f"{self._miniwob}/miniwob/"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), 20)
            except TimeoutError:
                self._process.kill()

    async def ask(self, limit: float = TIMEOUT, **message: Any) -> dict[str, Any]:
        """The answer to one message."""
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        answer = await asyncio.wait_for(self._process.stdout.readline(), limit)
        if not answer:
            raise RuntimeError("BrowserGym's process ended")
        found: dict[str, Any] = json.loads(answer)
        return found


def _plain_environment() -> dict[str, str]:
    """This process's environment without what would make the other one import our packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


# ---- figures -----------------------------------------------------------------------------------------------------
def milliseconds(seconds: Iterable[float]) -> float:
    """The median, in milliseconds."""
    return round(statistics.median(seconds) * 1000, 1)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> dict[str, float]:
    """What the figures were measured on."""
    return {"cores": os.cpu_count() or 0, "load_average": round(os.getloadavg()[0], 1)}


def tell(result: dict[str, Any], aims: dict[str, bool], out: Path | None) -> None:
    """Prints the figures and which aims they reach, and writes them where asked."""
    text = json.dumps({**result, **machine(), "aims": aims}, indent=2)
    sys.stdout.write(text + "\n")
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
