"""One question to a chat model: bounded in time however slowly the API replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from webagent_runtime.chat import Chat, ChatError

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@asynccontextmanager
async def served(reply: Reply) -> AsyncIterator[str]:
    """An API that replies so to whatever it is asked; its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            await reply(writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def trickling_body(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    await _trickle(writer)


async def trickling_head(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Slow: ")
    await _trickle(writer)


async def _trickle(writer: asyncio.StreamWriter) -> None:
    for _ in range(40):
        writer.write(b"0")
        await writer.drain()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("reply", [trickling_body, trickling_head])
async def test_a_reply_that_trickles_in_is_given_up(reply: Reply) -> None:
    async with served(reply) as url, asyncio.timeout(3):
        with pytest.raises(ChatError) as error:
            await Chat(url, "model", timeout_seconds=0.3, attempts=1).ask("Well?")
        assert error.value.cause == "UNAVAILABLE"
