"""Latency and throughput of the env service's step, beside the same bare Playwright calls in the same run.

    python benchmarks/env_step.py [--steps 100] [--sessions 16]

Both sides click the same checkbox of the same MiniWoB page in the same Chromium build. The bare side makes the calls
that a step cannot do without: find the element, click it by mouse, wait for two animation frames, read the page with
the very same script. Its figures are what a step would cost if the service, its contract and its checks were free.
Steps of the two sides alternate, so that both see the same machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2_grpc
from webagent_env.browser import FLAGS, find_executable
from webagent_env.cdp import world_script
from webagent_env.config import EnvConfig, SessionsConfig
from webagent_env.leftovers import InstanceDirectory
from webagent_env.miniwob import MiniWob
from webagent_env.pool import SessionPool
from webagent_env.probe_servicer import ProbeServicer
from webagent_env.servicer import EnvironmentServicer
from webagent_runtime.client import open_channel
from webagent_runtime.config import ServerConfig
from webagent_runtime.server import Server

TASK = "click-checkboxes"
TIMEOUT = 60.0
# What the same machine needed with browsergym-miniwob 0.14.3, median, seconds a step.
BROWSERGYM_STEP = 0.650
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


@asynccontextmanager
async def service(directory: Path, capacity: int) -> AsyncIterator[tuple[Any, str]]:
    """The real service on a free port, and the address of its MiniWoB pages."""
    limits = SessionsConfig(capacity=capacity, max_steps=100_000)
    config = EnvConfig(server=ServerConfig(port=0), state_directory=directory, sessions=limits)
    instance = InstanceDirectory(directory)
    suite = MiniWob()
    pool = SessionPool(config, instance, [suite])
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
            yield env_pb2_grpc.EnvironmentServiceStub(channel), suite.origin
    finally:
        await pool.stop()
        await server.stop(1.0)
        instance.remove()


class Served:
    """One session of the service."""

    def __init__(self, env: Any, name: str) -> None:
        self._env = env
        self._name = name
        self._index = 0

    async def open(self) -> None:
        """Opens the session."""
        task = env_pb2.TaskRef(suite="miniwob", task_id=TASK)
        request = env_pb2.CreateSessionRequest(session_id=self._name, task=task, seed=1)
        await self._env.CreateSession(request, timeout=TIMEOUT)

    async def step(self) -> None:
        """Clicks the first checkbox."""
        request = env_pb2.StepRequest(session_id=self._name, step_index=self._index)
        request.action.click.element = "0"
        await self._env.Step(request, timeout=TIMEOUT)
        self._index += 1


class Bare:
    """One page driven by Playwright alone."""

    def __init__(self, browser: Browser, origin: str) -> None:
        self._browser = browser
        self._origin = origin
        self._page: Page

    async def open(self) -> None:
        """Opens the page and puts the reading script into it."""
        context = await self._browser.new_context(viewport={"width": 160, "height": 210})
        self._page = await context.new_page()
        await self._page.goto(f"{self._origin}/miniwob/{TASK}.html")
        await self._page.evaluate("Math.seedrandom(1); core.EPISODE_MAX_TIME = 2e9; core.startEpisodeReal()")
        await self._page.evaluate(world_script())

    async def step(self) -> None:
        """Finds, clicks, waits for two frames, reads."""
        x, y = await self._page.evaluate(POINT)
        await self._page.mouse.click(x, y)
        await self._page.evaluate(TWO_FRAMES)
        await self._page.evaluate(f"webagent.observe({OPTIONS})")


async def timed(one: Served | Bare) -> float:
    """Seconds of one step."""
    begun = time.perf_counter()
    await one.step()
    return time.perf_counter() - begun


async def throughput(many: list[Served] | list[Bare], steps: int) -> float:
    """Steps a second of all together, each stepping as fast as it can."""

    async def work(one: Served | Bare) -> None:
        for _ in range(steps):
            await one.step()

    begun = time.perf_counter()
    await asyncio.gather(*(work(one) for one in many))
    return len(many) * steps / (time.perf_counter() - begun)


async def main(steps: int, sessions: int) -> dict[str, float]:
    """Measures both sides."""
    with tempfile.TemporaryDirectory() as directory:
        async with service(Path(directory), sessions) as (env, origin), async_playwright() as playwright:
            executable = find_executable(None, Path(playwright.chromium.executable_path))
            browser = await playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
            served = [Served(env, f"b{number}") for number in range(sessions)]
            bare = [Bare(browser, origin) for _ in range(sessions)]
            opened = []
            for one in served:
                begun = time.perf_counter()
                await one.open()
                opened.append(time.perf_counter() - begun)
            for other in bare:
                await other.open()
            pairs = [(await timed(served[0]), await timed(bare[0])) for _ in range(steps)]
            ours = statistics.median(pair[0] for pair in pairs)
            theirs = statistics.median(pair[1] for pair in pairs)
            each = max(1, steps // 5)
            rates = [(await throughput(served, each), await throughput(bare, each)) for _ in range(3)]
            await browser.close()
    return {
        "steps": steps,
        "sessions": sessions,
        "cores": os.cpu_count() or 0,
        "load_average": round(os.getloadavg()[0], 1),
        "open_session_p50_ms": round(statistics.median(opened) * 1000, 1),
        "step_p50_ms": round(ours * 1000, 1),
        "bare_step_p50_ms": round(theirs * 1000, 1),
        "step_over_bare": round(ours / theirs, 2),
        "times_faster_than_browsergym_miniwob": round(BROWSERGYM_STEP / ours, 1),
        "sessions_steps_per_second": round(statistics.median(rate[0] for rate in rates), 1),
        "bare_steps_per_second": round(statistics.median(rate[1] for rate in rates), 1),
        "sessions_steps_per_second_per_core": round(
            statistics.median(rate[0] for rate in rates) / (os.cpu_count() or 1), 1
        ),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=16)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(main(options.steps, options.sessions)), indent=2))
