"""Channels to environments are shared, bounded, and never closed under a caller."""

from __future__ import annotations

import asyncio

import pytest
from webagent_evaluator.sessions import Sessions
from webagent_evaluator.verdicts import NoVerdictError
from webagent_runtime.config import ClientConfig

FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"


async def test_a_new_environment_waits_for_an_idle_connection() -> None:
    sessions = Sessions(ClientConfig(), limit=1)
    entered = asyncio.Event()

    async def enter_second() -> None:
        async with sessions.session(SECOND, "s", timeout=10):
            entered.set()

    async with sessions.session(FIRST, "s", timeout=10), sessions.session(FIRST, "t", timeout=10):
        waiting = asyncio.create_task(enter_second())
        await asyncio.sleep(0)
        assert not entered.is_set()
    await asyncio.wait_for(waiting, 10)
    await sessions.close()


async def test_waiting_for_a_connection_ends_with_the_caller_s_time() -> None:
    sessions = Sessions(ClientConfig(), limit=1)
    async with sessions.session(FIRST, "s", timeout=10):
        with pytest.raises(NoVerdictError) as fault:
            async with sessions.session(SECOND, "s", timeout=0.05):
                pass
    assert fault.value.reason == "EVALUATOR_BUSY"
    await sessions.close()


async def test_idle_waits_for_the_reads_in_flight() -> None:
    sessions = Sessions(ClientConfig(), limit=2)
    async with sessions.session(FIRST, "s", timeout=10):
        idle = asyncio.create_task(sessions.idle())
        await asyncio.sleep(0)
        assert not idle.done()
    await asyncio.wait_for(idle, 10)
    await sessions.close()
