"""Observing very large pages: seconds and bytes, beside BrowserGym and a bare dump of the page, in the same run.

    python benchmarks/env/large_pages.py [--rounds 5] [--out FILE]

One page has 50,000 elements in the viewport, one a text of 5 MB, one a table of 50,000 cells most of which are out of
view. BrowserGym's figure is one step on the page, which may take minutes; the bare one is `page.content()`, which
understands nothing of what it reads. Ours is `Observe`: settling, reading and the way over gRPC.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from aiohttp import web
from parts import TIMEOUT, BrowserGym, chromium, milliseconds, serving, tell
from webagent.env.v1 import env_pb2
from webagent_env.config import SessionsConfig
from webagent_env.task_files import load_own

BUTTON = "<button>target</button>"
PAGES = {
    "50,000 elements in view": (
        f"{BUTTON}<style>p{{position:absolute;top:40px;margin:0}}</style><div id=d></div>"
        "<script>d.innerHTML = '<p>some text</p>'.repeat(50000)</script>"
    ),
    "a table of 50,000 cells": (
        f"{BUTTON}<table id=d></table>"
        "<script>d.innerHTML = ('<tr>' + '<td>cell</td>'.repeat(10) + '</tr>').repeat(5000)</script>"
    ),
    "a text of 5 MB": f"{BUTTON}<pre id=d></pre><script>d.textContent = 'word '.repeat(1e6)</script>",
}
BOUND_BYTES = 262_144


async def site() -> tuple[web.AppRunner, str]:
    """Serves the pages."""
    pages = list(PAGES.values())

    async def answer(request: web.Request) -> web.Response:
        html = f"<!DOCTYPE html><body>{pages[int(request.match_info['number'])]}</body>"
        return web.Response(text=html, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{number}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def observed(service: Any, number: int, rounds: int) -> tuple[list[float], int]:
    """Seconds of each observation of a page, and the bytes of the longest."""
    name = f"page-{number}"
    task = env_pb2.TaskRef(suite="large", task_id=name)
    request = env_pb2.CreateSessionRequest(session_id=name, task=task)
    await service.env.CreateSession(request, timeout=TIMEOUT)
    taken, longest = [], 0
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = await service.env.Observe(env_pb2.ObserveRequest(session_id=name), timeout=TIMEOUT)
        taken.append(time.perf_counter() - begun)
        longest = max(longest, len(answer.observation.text.encode()))
    await service.env.CloseSession(env_pb2.CloseSessionRequest(session_id=name), timeout=TIMEOUT)
    return taken, longest


async def theirs(gym: BrowserGym, url: str, limit: float) -> float | str:
    """Seconds of a step of BrowserGym's, or what came of it."""
    options = {"task_kwargs": {"start_url": url, "goal": "x"}}
    try:
        await gym.ask(limit, do="open", env="browsergym/openended", options=options)
        answer = await gym.ask(limit, do="act", verb="click", what="target")
    except TimeoutError:
        return f"more than {limit:g} s"
    return round(answer["step"], 2) if "step" in answer else str(answer)


async def main(rounds: int, limit: float, out: Path | None) -> None:
    """Measures each page on all sides."""
    runner, address = await site()
    limits = SessionsConfig(reset_timeout_seconds=120, step_timeout_seconds=60, max_observation_bytes=BOUND_BYTES)
    result: dict[str, Any] = {}
    aims = {}
    try:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "large.yaml"
            tasks = [f"  - {{id: page-{n}, instruction: x, start_url: '{address}/{n}'}}" for n in range(len(PAGES))]
            file.write_text("\n".join(["suite: large", "tasks:", *tasks]), encoding="utf-8")
            async with serving(limits, [load_own(file)]) as service, chromium() as browser:
                for number, name in enumerate(PAGES):
                    taken, longest = await observed(service, number, rounds)
                    page = await browser.new_page()
                    await page.goto(f"{address}/{number}")
                    dumps = []
                    for _ in range(rounds):
                        begun = time.perf_counter()
                        await page.content()
                        dumps.append(time.perf_counter() - begun)
                    await page.close()
                    # A process a page: one that passed its limit is of no more use.
                    async with BrowserGym() as gym:
                        other = await theirs(gym, f"{address}/{number}", limit)
                    ours = milliseconds(taken)
                    result[name] = {
                        "observe_p50_ms": ours,
                        "bytes": longest,
                        "bare_content_p50_ms": milliseconds(dumps),
                        "browsergym_step_s": other,
                        "browsergym_over_observe": round(other * 1000 / ours, 1) if isinstance(other, float) else None,
                    }
                    aims[f"{name}: within 1 s and the bound"] = ours <= 1000 and longest <= BOUND_BYTES
    finally:
        await runner.cleanup()
    tell(result, aims, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds that BrowserGym is given for a page")
    parser.add_argument("--out", type=Path, help="file for the figures")
    given = parser.parse_args()
    asyncio.run(main(given.rounds, given.limit, given.out))
