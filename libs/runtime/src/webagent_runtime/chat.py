"""One question to a chat model behind any OpenAI-compatible API, such as http://host:8000/v1.

Attempts are bounded in number and each in time, however slowly the reply comes, with growing waits between them. An API
that is down, overloaded or answers something else than a chat completion is asked again; one that refuses is not. The
threads that wait for replies are of their own, so a slow API keeps no other work of the process from a thread.
"""

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

log = structlog.get_logger()

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
MAX_REPLY_BYTES = 1024 * 1024
_WAITING = ThreadPoolExecutor(64, "chat")
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
        data = json.dumps(body).encode()
        return await persist(lambda: self._attempt(data), self.attempts)

    async def _attempt(self, data: bytes) -> str:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def post() -> str:
            loop.call_soon_threadsafe(begun.set)
            return self._post(data)

        posted = loop.run_in_executor(_WAITING, post)
        try:
            await begun.wait()
            async with asyncio.timeout(self.timeout_seconds):
                return await posted
        except TimeoutError as error:
            raise ChatError("UNAVAILABLE", f"{self.base_url} gave no reply in {self.timeout_seconds:g} s") from error
        finally:
            posted.cancel()

    def _post(self, data: bytes) -> str:
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(url, data, headers)  # noqa: S310  whoever configures it chooses the scheme
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_seconds) as response:  # noqa: S310
                content = _read(response, time.monotonic() + self.timeout_seconds)
        except urllib.error.HTTPError as error:
            error.close()
            again = error.code in _BUSY or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise ChatError("UNAVAILABLE" if again else "REFUSED", f"{url} answered {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ChatError("UNAVAILABLE", f"{url}: {error}") from error
        try:
            return str(json.loads(content)["choices"][0]["message"]["content"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ChatError("MALFORMED", f"{url} gave no chat completion") from error


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """A body, as far as MAX_REPLY_BYTES."""
    content = b""
    while len(content) < MAX_REPLY_BYTES and (part := response.read1(MAX_REPLY_BYTES - len(content))):
        content += part
        if time.monotonic() > deadline:
            raise TimeoutError("the reply did not end in time")
    return content


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
