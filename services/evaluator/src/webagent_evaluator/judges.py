"""The judges that can be asked: any OpenAI-compatible API, or a model behind our own inference contract.

Temperature is 0. A judge that is down is asked again, a bounded number of times and each within a bound; one that stays
down, or refuses, leaves the verdict INVALID.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import grpc.aio
import structlog
from webagent.inference.v1 import inference_pb2 as inference
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import from_rpc

from webagent_evaluator.config import JudgeConfig
from webagent_evaluator.judge import Exchange, Judge, NoJudge, Question, prompt_of
from webagent_evaluator.verdicts import NoVerdictError

if TYPE_CHECKING:
    from webagent.inference.v1.inference_pb2_grpc import InferenceServiceAsyncStub

MAX_REPLY_BYTES = 1024 * 1024
T = TypeVar("T")

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
_DOWN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_DOWN_CODES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}

log = structlog.get_logger()


class _DownError(Exception):
    """Asking again may help."""


def judge_of(config: JudgeConfig) -> Judge:
    """The judge that is configured."""
    if not config.endpoint:
        return NoJudge()
    return InferenceJudge(config) if config.endpoint.startswith("grpc://") else ApiJudge(config)


class ApiJudge:
    """A model behind an OpenAI-compatible API."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._headers = {"Content-Type": "application/json"}
        if config.api_key_file is not None:
            try:
                key = config.api_key_file.read_text().strip()
            except OSError as error:
                raise ConfigError(f"judge.api_key_file {config.api_key_file}: {error.strerror}") from None
            self._headers["Authorization"] = f"Bearer {key}"

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Asks the model."""
        prompt = prompt_of(question, intent)
        body = {
            "model": self._config.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": self._config.max_tokens,
        }
        data = json.dumps(body).encode()
        reply = await _persist(lambda: asyncio.to_thread(self._post, data), self._config.attempts)
        return Exchange(prompt, reply, self._config.model)

    def _post(self, data: bytes) -> str:
        url = f"{self._config.endpoint.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, data, self._headers)  # noqa: S310 (the config allows no other scheme)
        try:
            with urllib.request.urlopen(request, timeout=self._config.timeout_seconds) as response:  # noqa: S310
                content = response.read(MAX_REPLY_BYTES)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _DOWN or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise _DownError(f"it answered {error.code}") from error
            raise NoVerdictError("JUDGE_REFUSED", f"the judge at {url} answered {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _DownError(str(error)) from error
        try:
            return str(json.loads(content)["choices"][0]["message"]["content"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise NoVerdictError("JUDGE_REPLY_MALFORMED", f"the judge at {url} gave no chat completion") from error


class InferenceJudge:
    """A model behind our inference contract."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Asks the model."""
        prompt = prompt_of(question, intent)
        async with open_channel(self._config.endpoint.removeprefix("grpc://"), self._config.client) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            response = await _persist(lambda: self._generate(stub, prompt), self._config.attempts)
        return Exchange(prompt, response.text, response.model.model_id)

    async def _generate(self, stub: InferenceServiceAsyncStub, prompt: str) -> inference.GenerateResponse:
        timeout = self._config.timeout_seconds
        message = inference.Message(role=inference.ROLE_USER, text=prompt)
        try:
            rendered = await stub.Render(inference.RenderRequest(messages=[message]), timeout=timeout)
            request = inference.GenerateRequest(
                request_id=f"judge-{uuid4()}",
                prompt_token_ids=rendered.prompt_token_ids,
                sampling=inference.SamplingSettings(temperature=0, max_tokens=self._config.max_tokens),
            )
            return await stub.Generate(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            cause = from_rpc(error)
            if cause.code in _DOWN_CODES:
                raise _DownError(str(cause)) from error
            raise NoVerdictError("JUDGE_REFUSED", f"the judge refused: {cause}") from error


async def _persist(attempt: Callable[[], Awaitable[T]], attempts: int) -> T:
    wait = FIRST_WAIT_SECONDS
    for left in reversed(range(attempts)):
        try:
            return await attempt()
        except _DownError as error:
            log.warning("judge down", error=str(error), attempts_left=left)
            if not left:
                raise NoVerdictError("JUDGE_UNAVAILABLE", f"the judge is down: {error}") from error
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)
    raise AssertionError("attempts is at least 1")
