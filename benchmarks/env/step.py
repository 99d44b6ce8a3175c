"""Latency and throughput of a step, beside BrowserGym and beside the bare Playwright calls, in the same run.

    python benchmarks/env/step.py [--steps 60] [--sessions 16] [--out FILE]

All sides click the same field of the same MiniWoB pages, of the same seeds, in the same Chromium. The bare side makes
the calls that a step cannot do without: find the element, click it by mouse, wait for two animation frames, read the
page with the very same script; its figures are what a step would cost if the service, its contract and its checks were
free. `direct` takes the same step in the service's process without gRPC. Steps of all sides alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from parts import Bare, BrowserGym, Served, chromium, milliseconds, quantile, serving, tell
from webagent_env.actions import Click
from webagent_env.config import SessionsConfig

# In each, clicking the first field ends nothing.
TASKS = ("click-checkboxes", "enter-text", "click-option")
FIELD = "checkbox|textbox|radio"
SEED = 1


async def seconds(work: Awaitable[object]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def direct(one: Served) -> None:
    """The service's step without the contract and its transport."""
    await one.service.pool.get(one.name).step(one.index, Click("0"), "")
    one.index += 1


async def latencies(service: Any, browser: Any, gym: BrowserGym, steps: int) -> dict[str, list[float]]:
    """Seconds of single steps of each side, one session each."""
    sides: dict[str, list[float]] = {"service": [], "direct": [], "bare": [], "browsergym": [], "browsergym_open": []}
    for task in TASKS:
        served, bare = Served(service, f"latency-{task}"), Bare(browser, service.origin)
        await served.open(f"miniwob/{task}", SEED)
        await bare.open(f"miniwob/{task}", SEED)
        opened = await gym.ask(do="open", env=f"browsergym/miniwob.{task}", seed=SEED)
        sides["browsergym_open"].append(opened["seconds"])
        for number in range(steps):
            sides["service"].append(await seconds(served.step()))
            sides["direct"].append(await seconds(direct(served)))
            sides["bare"].append(await seconds(bare.step()))
            if number < steps // 4 + 1:  # these take many times as long
                answer = await gym.ask(do="act", verb="click", what=FIELD)
                if answer.get("error") or not answer["found"]:
                    raise RuntimeError(f"BrowserGym: {answer}")
                sides["browsergym"].append(answer["step"])
        await served.close()
        await bare.close()
    return sides


async def together(many: list[Any], steps: int) -> tuple[float, list[float]]:
    """Steps a second of all sessions, each stepping as fast as it can, and the seconds of every step."""
    taken: list[float] = []

    async def work(one: Any) -> None:
        for _ in range(steps):
            taken.append(await seconds(one.step()))

    begun = time.perf_counter()
    await asyncio.gather(*(work(one) for one in many))
    return len(taken) / (time.perf_counter() - begun), taken


async def main(steps: int, sessions: int, out: Path | None) -> None:
    """Measures all sides."""
    limits = SessionsConfig(capacity=sessions + 1, max_steps=100_000)
    async with serving(limits) as service, chromium() as browser, BrowserGym(service.origin) as gym:
        sides = await latencies(service, browser, gym, steps)
        served = [Served(service, f"rate-{number}") for number in range(sessions)]
        bare = [Bare(browser, service.origin) for _ in range(sessions)]
        for one in [*served, *bare]:
            await one.open(f"miniwob/{TASKS[0]}", SEED)
        each = max(1, steps // 3)
        rounds = [(await together(served, each), await together(bare, each)) for _ in range(3)]
    median = {name: statistics.median(values) for name, values in sides.items()}
    rate = statistics.median(ours[0] for ours, _ in rounds)
    taken = [step for ours, _ in rounds for step in ours[1]]
    result = {
        "steps": steps * len(TASKS),
        "step_p50_ms": milliseconds(sides["service"]),
        "bare_step_p50_ms": milliseconds(sides["bare"]),
        "browsergym_step_p50_ms": milliseconds(sides["browsergym"]),
        "browsergym_open_p50_ms": milliseconds(sides["browsergym_open"]),
        "step_over_bare": round(median["service"] / median["bare"], 2),
        "browsergym_over_step": round(median["browsergym"] / median["service"], 1),
        "grpc_adds_ms": round((median["service"] - median["direct"]) * 1000, 2),
        "sessions": sessions,
        "sessions_steps_per_second": round(rate, 1),
        "bare_steps_per_second": round(statistics.median(theirs[0] for _, theirs in rounds), 1),
        "sessions_rate_over_one_browsergym": round(rate * statistics.fmean(sides["browsergym"]), 1),
        "sessions_step_p50_ms": milliseconds(taken),
        "sessions_step_p95_over_p50": round(quantile(taken, 0.95) / statistics.median(taken), 2),
    }
    aims = {
        "a step is at least 10 times faster than BrowserGym's": result["browsergym_over_step"] >= 10,
        "a step is within 1.5 times the bare calls": result["step_over_bare"] <= 1.5,
        "gRPC adds less than 3 ms": result["grpc_adds_ms"] < 3,
        "the sessions step at least 10 times as often as one BrowserGym": (
            result["sessions_rate_over_one_browsergym"] >= 10
        ),
        "the sessions' p95 is under 4 times their median": result["sessions_step_p95_over_p50"] < 4,
    }
    tell(result, aims, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="of each side on each task")
    parser.add_argument("--sessions", type=int, default=16, help="at the same time")
    parser.add_argument("--out", type=Path, help="file for the figures")
    given = parser.parse_args()
    asyncio.run(main(given.steps, given.sessions, given.out))
