"""An interruption of vLLM that is given up halfway; all else is tested with the real engine, in test_service.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest


class Engine:
    """As much of an AsyncLLM as an interruption meets: paused, it computes nothing until it is resumed."""

    def __init__(self) -> None:
        self.paused, self.running = asyncio.Event(), asyncio.Event()

    async def generate(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    async def pause_generation(self, **_: Any) -> None:
        self.running.clear()
        self.paused.set()
        await asyncio.sleep(0.02)

    async def resume_generation(self) -> None:
        await asyncio.sleep(0.02)
        self.running.set()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_an_interruption_that_is_given_up_leaves_the_scheduler_running(cancels: int) -> None:
    from webagent_inference.vllm_backend import VllmBackend

    engine: Any = Engine()
    backend = VllmBackend(engine, [2])
    request = asyncio.create_task(backend.score([1], [2]))
    await asyncio.sleep(0)
    interrupting = asyncio.create_task(backend.interrupt())
    await engine.paused.wait()
    for _ in range(cancels):
        interrupting.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({interrupting})
    async with asyncio.timeout(5):
        await engine.running.wait()
    request.cancel()
