"""The ways to use the service: the client, Gymnasium, MCP, OpenEnv, and the conformance program."""

import asyncio
import json
import re
import subprocess
import warnings
from pathlib import Path

import aiohttp
import gymnasium
import pytest
import webagent_env.gymnasium_env  # noqa: F401  registers the environment
from aiohttp import web
from gymnasium.utils.env_checker import check_env
from mcp.client import Client
from webagent.env.v1 import env_pb2
from webagent_env import conformance
from webagent_env.arena.catalogue import make_arena
from webagent_env.client import EnvClient, SyncEnvClient
from webagent_env.config import SessionsConfig
from webagent_env.mcp_server import make_server
from webagent_env.openenv_server import Environment, make_application
from webagent_runtime.errors import ServiceError

pytestmark = pytest.mark.asyncio(loop_scope="session")

# What the client imports of openenv-core's requirements; the others draw its web page and call models.
OPENENV = ("openenv-core==0.3.0", "fastmcp", "fastapi", "uvicorn", "requests", "websockets", "pyyaml")
OPTIONS = env_pb2.SessionOptions(omit_attributes=["data-bbox"])


def solution(instruction: str, text: str) -> str:
    """The action that solves miniwob/click-button."""
    name = re.search(r'"(.*)"', instruction)[1]
    number = re.search(rf'<button id="(\d+)"[^>]*>{re.escape(name)}<', text, re.IGNORECASE)[1]
    return f'do(action="Click", element="{number}")'


async def test_the_client_plays_an_episode(service):
    async with EnvClient(service.address) as env:
        assert len(await env.tasks("miniwob")) > 100
        async with await env.open("miniwob/click-button", seed=3, options=OPTIONS) as session:
            assert not (await session.judge()).done
            answer = await session.act(solution(session.instruction, session.observation.text))
            assert answer.terminated
            assert session.over
            assert (await session.judge()).success
        with pytest.raises(ServiceError) as error:
            await env.open("miniwob/no-such-task")
        assert error.value.reason == "TASK_NOT_FOUND"


async def test_the_client_needs_no_event_loop(service):
    def play() -> tuple[str, bool]:
        with (
            SyncEnvClient(service.address) as env,
            env.open("miniwob/click-button", seed=3, options=OPTIONS) as session,
        ):
            session.act(solution(session.instruction, session.observation.text))
            return session.observe().url, session.judge().success

    url, success = await asyncio.to_thread(play)
    assert url.endswith("click-button.html?seed=3")
    assert success


async def test_gymnasiums_own_checker_passes(service):
    def check() -> None:
        made = gymnasium.make("webagent/Task-v0", target=service.address, options=OPTIONS, render_mode="rgb_array")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_env(made.unwrapped, skip_close_check=True)
        text, info = made.reset(seed=3)
        text, reward, terminated, truncated, _ = made.step(solution(info["instruction"], text))
        assert (reward, terminated, truncated) == (1.0, True, False)
        made.close()

    await asyncio.to_thread(check)


async def test_gymnasium_renders_between_a_reset_and_a_step(service):
    def check() -> None:
        made = gymnasium.make("webagent/Task-v0", target=service.address, options=OPTIONS, render_mode="rgb_array")
        text, info = made.reset(seed=3)
        assert made.render().ndim == 3
        _, reward, terminated, _, _ = made.step(solution(info["instruction"], text))
        assert (reward, terminated) == (1.0, True)
        made.close()

    await asyncio.to_thread(check)


async def test_an_mcp_client_plays_an_episode(service):
    async with Client(make_server(service.address)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"list_tasks", "open_session", "act", "read_page", "screenshot", "close_session"}
        refused = await client.call_tool("act", {"action": "exit()"})
        assert refused.is_error
        opened = await client.call_tool("open_session", {"task": "miniwob/click-button", "seed": 3})
        page = opened.content[0].text
        shot = await client.call_tool("screenshot", {})
        assert shot.content[0].mime_type == "image/png"
        acted = await client.call_tool("act", {"action": solution(page.splitlines()[0], page)})
        assert acted.content[0].text.startswith("OK\nThe episode is over.")
        assert (await client.call_tool("close_session", {})).content[0].text == "closed"
    assert not any(session.spec.task.task_id == "click-button" for session in service.pool.sessions())


async def served(service) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(make_application(service.address), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_a_websocket_in_openenvs_form_is_an_environment(service):
    runner, address = await served(service)
    try:
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{address}/ws") as socket:

            async def ask(kind: str, **data: object) -> dict:
                await socket.send_json({"type": kind, "data": data})
                return await asyncio.wait_for(socket.receive_json(), 60)

            assert (await ask("step", action="exit()"))["data"]["code"] == "SESSION_ERROR"
            assert (await ask("fly"))["data"]["code"] == "UNKNOWN_TYPE"
            await socket.send_str("{")
            assert (await socket.receive_json())["data"]["code"] == "INVALID_JSON"
            first = (await ask("reset", seed=3))["data"]
            assert (first["reward"], first["done"]) == (None, False)
            action = solution(first["observation"]["instruction"], first["observation"]["text"])
            last = (await ask("step", action=action))["data"]
            assert (last["reward"], last["done"]) == (1.0, True)
            assert (await ask("state"))["data"]["step_count"] == 1
            await socket.send_str(json.dumps({"type": "close"}))
    finally:
        await runner.cleanup()


async def test_a_task_that_its_page_does_not_judge_is_never_paid_zero(make_service):
    def gymnasium_refuses(address: str) -> None:
        made = gymnasium.make("webagent/Task-v0", target=address, task="arena/shop-price")
        with pytest.raises(gymnasium.error.Error, match="not judged by its own page"):
            made.reset(seed=3)
        made.close()

    async for service in make_service(SessionsConfig(warm_contexts=0), suites=[make_arena()]):
        await asyncio.to_thread(gymnasium_refuses, service.address)
        assert service.pool.sessions() == []
        async with EnvClient(service.address) as client:
            environment = Environment(client, "arena/shop-price")
            await environment.answer('{"type": "reset", "data": {"seed": 3}}')
            last = (await environment.answer('{"type": "step", "data": {"action": "exit()"}}'))["data"]
            assert (last["reward"], last["done"]) == (None, True)
            await environment.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_openenvs_own_client_plays_episodes(service, install):
    # Its requirements are not ours, so it gets an environment of its own.
    python = await asyncio.to_thread(install, *OPENENV)
    runner, address = await served(service)
    program = Path(__file__).parent / "data" / "openenv_client.py"
    try:
        ended = await asyncio.to_thread(
            subprocess.run, [python, program, address], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        *played, refused = json.loads(ended.stdout)[0]
        assert played == [False, 1.0, True, 1, True]
        assert "TASK_NOT_FOUND" in refused
        assert json.loads(ended.stdout)[1] == [1.0, True]
        assert [each for each in service.pool.sessions() if each.spec.task.task_id == "click-button"] == []
    finally:
        await runner.cleanup()


async def test_this_service_keeps_the_contracts_promises(service):
    assert await conformance.run(service.address, "miniwob/click-button") == {}
