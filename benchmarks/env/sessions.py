"""Opening a MiniWoB session while the service is warm, beside a bare new context with its page, in the same run.

    python benchmarks/env/sessions.py [--rounds 50] [--out FILE]

"after another": the session before it was closed, so that a wiped context may serve it, or one opened ahead of it.
"beside others": eight at a time and none closed, so that each needs a context that nobody used. Bare: a new context, a
page in it, and the task's page loaded and started.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path

from parts import Bare, Served, chromium, milliseconds, quantile, serving, tell
from webagent_env.config import SessionsConfig

TASKS = ("miniwob/click-checkboxes", "miniwob/enter-text", "miniwob/click-option")
BESIDE = 8


async def seconds(work: Awaitable[object]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def main(rounds: int, out: Path | None) -> None:
    """Measures both sides in turn."""
    after: list[float] = []
    beside: list[float] = []
    bare: list[float] = []
    async with serving(SessionsConfig(capacity=BESIDE)) as service, chromium() as browser:
        for number in range(-3, rounds):  # the first three warm up
            task = TASKS[number % len(TASKS)]
            one, other = Served(service, f"after-{number}"), Bare(browser, service.origin)
            taken = await seconds(one.open(task, number + 3)), await seconds(other.open(task, number + 3))
            await one.step()
            await one.close()
            await other.close()
            await service.pool.warmed()
            if number >= 0:
                after.append(taken[0])
                bare.append(taken[1])
        for number in range(max(1, rounds // BESIDE)):
            many = [Served(service, f"beside-{number}-{place}") for place in range(BESIDE)]
            for one in many:
                await service.pool.warmed()
                beside.append(await seconds(one.open(TASKS[0], number)))
            for one in many:
                await one.close()
            # No context of this round may serve the next.
            await service.pool.forget_idle()
    result = {
        "rounds": rounds,
        "create_after_another_p50_ms": milliseconds(after),
        "create_after_another_p95_ms": round(quantile(after, 0.95) * 1000, 1),
        "create_beside_others_p50_ms": milliseconds(beside),
        "bare_p50_ms": milliseconds(bare),
        "bare_over_create": round(statistics.median(bare) / statistics.median(after), 1),
    }
    tell(result, {"a warm CreateSession takes less than 100 ms": result["create_after_another_p50_ms"] < 100}, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path, help="file for the figures")
    given = parser.parse_args()
    asyncio.run(main(given.rounds, given.out))
