"""The env service as an MCP server: `webagent-env-mcp --target HOST:PORT`, over standard input and output.

One client has one session at a time. A new one takes the old one's place, and the last one is closed at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mcp.server.mcpserver import Image, MCPServer
from webagent.env.v1 import env_pb2
from webagent_runtime.errors import ServiceError

from webagent_env.client import EnvClient, Session

_HOW = """Opens web pages as tasks. Open a session, read the page, act until the instruction is carried out, then act
exit(message="answer"). Elements are meant by the numbers of the newest page. Actions are one call each:
do(action="Click", element="7"), do(action="Type", argument="text", element="7"), also Right Click, Hover, Search,
Select Dropdown Option, Press Enter, Press Key, Scroll Down, Scroll Up, Switch Tab, Wait, Goto where it is allowed;
go_backward(), go_forward(), exit(message="...")."""
_OPTIONS = env_pb2.SessionOptions(omit_attributes=["data-bbox"])


class _Tools:
    """What a client of the MCP server can do."""

    def __init__(self, client: EnvClient) -> None:
        self._client = client
        self._session: Session | None = None

    async def list_tasks(self, suite: str = "") -> list[str]:
        """Lists tasks as "suite/task"."""
        return [f"{each.task.suite}/{each.task.task_id}" for each in await self._client.tasks(suite)]

    async def open_session(self, task: str, seed: int = 0) -> str:
        """Opens a task, given as "suite/task"; returns the instruction and the page."""
        await self.close_session()
        self._session = await self._client.open(task, seed=seed, options=_OPTIONS)
        return f"Instruction: {self._session.instruction}\n\n{_page(self._session.observation)}"

    async def act(self, action: str) -> str:
        """Takes one action; returns what became of it and the page as it is then."""
        answer = await self._current().act(action)
        said = env_pb2.ActionStatus.Name(answer.result.status).removeprefix("ACTION_STATUS_")
        lines = [f"{said}: {answer.result.message}" if answer.result.message else said]
        if answer.terminated or answer.truncated:
            lines.append("The episode is over.")
        return "\n".join(lines) + f"\n\n{_page(answer.observation)}"

    async def read_page(self) -> str:
        """Reads the page as it is now."""
        return _page(await self._current().observe())

    async def screenshot(self) -> Image:
        """A picture of the page, with the numbers of its elements."""
        kinds = env_pb2.OBSERVATION_KIND_MARKED_SCREENSHOT, env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML
        return Image(data=(await self._current().observe(*kinds)).marked_screenshot, format="png")

    async def close_session(self) -> str:
        """Closes the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        return "closed"

    def _current(self) -> Session:
        if self._session is None:
            raise ValueError("no session is open; call open_session first")
        return self._session


def make_server(target: str) -> MCPServer:
    """The server; it connects when its first tool is called."""
    client = EnvClient(target)
    tools = _Tools(client)

    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with suppress(ServiceError):  # where closing fails, the lease ends the session
                await tools.close_session()
            await client.close()

    server = MCPServer("webagent-env", instructions=_HOW, lifespan=lifespan)
    mine = (tools.list_tasks, tools.open_session, tools.act, tools.read_page, tools.screenshot, tools.close_session)
    for tool in mine:
        server.tool()(tool)
    return server


def _page(observation: env_pb2.Observation) -> str:
    tabs = [f"{'*' if tab.active else ' '} {n}: {tab.title} {tab.url}" for n, tab in enumerate(observation.tabs)]
    head = f"URL: {observation.url}\nTitle: {observation.title}"
    if len(tabs) > 1:
        head += "\nTabs:\n" + "\n".join(tabs)
    return f"{head}\n\n{observation.text}"


def main() -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(prog="webagent-env-mcp", description="serves the env service over MCP (stdio)")
    parser.add_argument("--target", default="127.0.0.1:50051", help="address of the env service")
    make_server(parser.parse_args().target).run()


if __name__ == "__main__":
    main()
