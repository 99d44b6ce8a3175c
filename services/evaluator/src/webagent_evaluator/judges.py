"""The judges that can be asked: any OpenAI-compatible API, or a model behind our own inference contract.

Temperature is 0. A judge that is down is asked again, a bounded number of times and each within a bound; one that stays
down, or refuses, leaves the verdict INVALID.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import grpc.aio
from webagent.inference.v1 import inference_pb2 as inference
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.chat import Chat, ChatError, persist
from webagent_runtime.client import open_channel
from webagent_runtime.errors import from_rpc
from webagent_runtime.secret_files import Token

from webagent_evaluator.config import JudgeConfig
from webagent_evaluator.judge import Exchange, Judge, NoJudge, Question, prompt_of
from webagent_evaluator.verdicts import NoVerdictError

if TYPE_CHECKING:
    from webagent.inference.v1.inference_pb2_grpc import InferenceServiceAsyncStub

_DOWN_CODES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}
_REASONS = {
    "UNAVAILABLE": "JUDGE_UNAVAILABLE",
    "REFUSED": "JUDGE_REFUSED",
    "MALFORMED": "JUDGE_REPLY_MALFORMED",
}


def judge_of(config: JudgeConfig) -> Judge:
    """The judge that is configured."""
    if not config.endpoint:
        return NoJudge()
    return InferenceJudge(config) if config.endpoint.startswith("grpc://") else ApiJudge(config)


class ApiJudge:
    """A model behind an OpenAI-compatible API."""

    def __init__(self, config: JudgeConfig) -> None:
        self._key = None if config.api_key_file is None else Token("judge.api_key_file", config.api_key_file)
        self._chat = Chat(
            base_url=config.endpoint,
            model=config.model,
            max_tokens=config.max_tokens,
            timeout_seconds=config.timeout_seconds,
            attempts=config.attempts,
        )

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Asks the model."""
        prompt = prompt_of(question, intent)
        try:
            reply = await replace(self._chat, key=self._key.value() if self._key else None).ask(prompt)
        except ChatError as error:
            raise _no_verdict(error) from error
        return Exchange(prompt, reply, self._chat.model)


class InferenceJudge:
    """A model behind our inference contract."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config

    async def ask(self, question: Question, intent: str) -> Exchange:
        """Asks the model."""
        prompt = prompt_of(question, intent)
        async with open_channel(self._config.endpoint.removeprefix("grpc://"), self._config.client) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            try:
                response = await persist(lambda: self._generate(stub, prompt), self._config.attempts)
            except ChatError as error:
                raise _no_verdict(error) from error
        wanted, served = self._config.model, response.model.model_id
        if wanted not in {"", served}:
            message = f"{self._config.endpoint} serves the model {served!r}, and judge.model is {wanted!r}"
            raise NoVerdictError("JUDGE_UNAVAILABLE", message)
        return Exchange(prompt, response.text, served)

    async def _generate(self, stub: InferenceServiceAsyncStub, prompt: str) -> inference.GenerateResponse:
        message = inference.Message(role=inference.ROLE_USER, text=prompt)
        timeout = self._config.timeout_seconds
        deadline = time.monotonic() + timeout
        try:
            rendered = await stub.Render(inference.RenderRequest(messages=[message]), timeout=timeout)
            request = inference.GenerateRequest(
                request_id=f"judge-{uuid4()}",
                prompt_token_ids=rendered.prompt_token_ids,
                sampling=inference.SamplingSettings(temperature=0, max_tokens=self._config.max_tokens),
            )
            return await stub.Generate(request, timeout=max(0.001, deadline - time.monotonic()))
        except grpc.aio.AioRpcError as error:
            cause = from_rpc(error)
            raise ChatError("UNAVAILABLE" if cause.code in _DOWN_CODES else "REFUSED", str(cause)) from error


def _no_verdict(error: ChatError) -> NoVerdictError:
    return NoVerdictError(_REASONS[error.cause], f"the judge gave no reply: {error}")
