"""One question to a chat model behind any OpenAI-compatible API, such as http://host:8000/v1.

Attempts are bounded in number and each in time, however slowly the reply comes, with growing waits between them. An API
that is down, overloaded or answers something else than a chat completion is asked again; one that refuses is not.
"""

import json
from asyncio import IncompleteReadError
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import structlog
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

log = structlog.get_logger()

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
MAX_REPLY_BYTES = 1024 * 1024
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

T = TypeVar("T")
Cause = Literal["UNAVAILABLE", "REFUSED", "MALFORMED"]


class ChatError(Exception):
    """No reply can be had. Only REFUSED is final; the other causes are worth another attempt."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Chat:
    """A model of an API, and the bounds of asking it."""

    base_url: str
    model: str
    key: str | None = None
    max_tokens: int = 768
    timeout_seconds: float = 20.0
    attempts: int = 3

    async def ask(self, prompt: str, *, temperature: float = 0.0) -> str:
        """The reply; ChatError if there is none after all attempts."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
            "max_tokens": self.max_tokens,
        }
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        timeout = ClientTimeout(total=self.timeout_seconds)
        async with ClientSession(headers=headers, timeout=timeout, trust_env=True) as session:
            return await persist(lambda: self._attempt(session, body), self.attempts)

    async def _attempt(self, session: ClientSession, body: dict[str, Any]) -> str:
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        try:
            async with session.post(url, json=body) as response:
                status, content = response.status, await _content(response)
        except TimeoutError as error:
            raise ChatError("UNAVAILABLE", f"{url} gave no reply in {self.timeout_seconds:g} s") from error
        except (ClientError, OSError, ValueError) as error:
            raise ChatError("UNAVAILABLE", f"{url}: {error}") from error
        if status >= HTTPStatus.BAD_REQUEST:
            again = status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise ChatError("UNAVAILABLE" if again else "REFUSED", f"{url} answered {status}")
        try:
            return str(json.loads(content)["choices"][0]["message"]["content"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ChatError("MALFORMED", f"{url} gave no chat completion") from error


async def _content(response: ClientResponse) -> bytes:
    """A body, as far as MAX_REPLY_BYTES."""
    try:
        return await response.content.readexactly(MAX_REPLY_BYTES)
    except IncompleteReadError as error:
        return error.partial


async def persist(attempt: Callable[[], Awaitable[T]], attempts: int) -> T:
    """Attempts until one succeeds, or is refused, or was the last; `attempts` is at least 1."""

    async def once() -> T:
        return await attempt()

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ChatError) and error.cause != "REFUSED"),
        stop=stop_after_attempt(attempts),
        wait=wait_exponential(FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        before_sleep=_announce,
        reraise=True,
    )
    reply: T = await retrying(once)
    return reply


def _announce(state: RetryCallState) -> None:
    assert state.outcome is not None
    log.warning("chat_again", error=str(state.outcome.exception()), attempts=state.attempt_number)
