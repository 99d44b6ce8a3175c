"""The env service for OpenEnv's clients: `webagent-env-openenv --target HOST:PORT [--port 8000]`.

A WebSocket is an environment: {"type": "reset", "data": {"task": "suite/task", "seed": 3}}, then {"type": "step",
"data": {"action": "do(...)"}}, {"type": "state"} and {"type": "close"}. Its session is closed when it disconnects.
The reward comes with the end of the episode; tasks that their own page does not judge have none.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import structlog
from aiohttp import WSMsgType, web
from webagent.env.v1 import env_pb2
from webagent_runtime.errors import ServiceError

from webagent_env.client import EnvClient, Session

log = structlog.get_logger()

_MOST_MESSAGE_BYTES = 1 << 20
_CLIENT: web.AppKey[EnvClient] = web.AppKey("client", EnvClient)
_TASK: web.AppKey[str] = web.AppKey("task", str)


class _RefusedError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Environment:
    """What one WebSocket talks to."""

    def __init__(self, client: EnvClient, task: str) -> None:
        self._client = client
        self._task = task
        self._session: Session | None = None

    async def answer(self, text: str) -> dict[str, Any] | None:
        """The answer to one message, or None at the end."""
        try:
            message = json.loads(text)
            return await self._answer(message.get("type"), message.get("data") or {})
        except _RefusedError as error:
            return _error(error.code, str(error))
        except json.JSONDecodeError as error:
            return _error("INVALID_JSON", str(error))
        except (ValueError, AttributeError, TypeError) as error:
            return _error("VALIDATION_ERROR", str(error))
        except ServiceError as error:
            full = error.reason == "AT_CAPACITY"
            return _error("CAPACITY_REACHED" if full else "EXECUTION_ERROR", f"{error.reason}: {error}")

    async def _answer(self, kind: str, data: dict[str, Any]) -> dict[str, Any] | None:
        match kind:
            case "reset":
                return {"type": "observation", "data": await self._reset(data)}
            case "step":
                return {"type": "observation", "data": await self._step(data)}
            case "state":
                return {"type": "state", "data": self._state()}
            case "close":
                return None
            case _:
                raise _RefusedError("UNKNOWN_TYPE", f"there is no message {kind!r}")

    async def close(self) -> None:
        """Closes the session, if there is one."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        await self.close()
        task = str(data.get("task") or self._task)
        options = env_pb2.SessionOptions(omit_attributes=["data-bbox"])
        self._session = await self._client.open(
            task, seed=int(data.get("seed") or 0), session_id=str(data.get("episode_id") or ""), options=options
        )
        return self._seen(None, done=False)

    async def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        action = data.get("action")
        if not isinstance(action, str):
            raise _RefusedError("VALIDATION_ERROR", 'a step needs "action", a text such as do(action="Wait")')
        session = self._open()
        answer = await session.act(action)
        done = answer.terminated or answer.truncated
        judgement = await session.judge() if done else None
        reward = None if judgement is None else float(judgement.success)
        seen = self._seen(reward, done=done)
        seen["observation"]["status"] = env_pb2.ActionStatus.Name(answer.result.status)
        seen["observation"]["message"] = answer.result.message
        return seen

    def _seen(self, reward: float | None, *, done: bool) -> dict[str, Any]:
        session = self._open()
        observation = {
            "instruction": session.instruction,
            "text": session.observation.text,
            "url": session.observation.url,
            "title": session.observation.title,
        }
        return {"observation": observation, "reward": reward, "done": done}

    def _state(self) -> dict[str, Any]:
        session = self._open()
        return {"episode_id": session.info.session_id, "step_count": session.next_step}

    def _open(self) -> Session:
        if self._session is None:
            raise _RefusedError("SESSION_ERROR", "reset comes first")
        return self._session


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


async def _socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=_MOST_MESSAGE_BYTES)
    await socket.prepare(request)
    environment = Environment(request.app[_CLIENT], request.app[_TASK])
    try:
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            answer = await environment.answer(message.data)
            if answer is None:
                break
            await socket.send_json(answer)
    finally:
        await environment.close()
    return socket


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


def make_application(target: str, task: str = "miniwob/click-button") -> web.Application:
    """The server's application; `task` is what a reset without one opens."""
    application = web.Application()
    application.router.add_get("/ws", _socket)
    application.router.add_get("/health", _health)
    application[_TASK] = task

    async def connect(app: web.Application) -> Any:
        app[_CLIENT] = EnvClient(target)
        yield
        await app[_CLIENT].close()

    application.cleanup_ctx.append(connect)
    return application


def main() -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(prog="webagent-env-openenv", description="serves the env service to OpenEnv")
    parser.add_argument("--target", default="127.0.0.1:50051", help="address of the env service")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on")
    parser.add_argument("--task", default="miniwob/click-button", help="what a reset without a task opens")
    given = parser.parse_args()
    web.run_app(make_application(given.target, given.task), host=given.host, port=given.port)


if __name__ == "__main__":
    main()
