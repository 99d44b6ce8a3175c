"""A chat endpoint that speaks OpenAI's protocol, for text that becomes training data. The environment has its key."""

from __future__ import annotations

import os

from webagent_runtime.chat import Chat, ChatError

KEY_VARIABLE = "WEBAGENT_ENDPOINT_KEY"


class EndpointError(Exception):
    """The endpoint did not answer as it should."""


class Endpoint:
    """One model at an endpoint such as http://127.0.0.1:8000/v1."""

    def __init__(
        self, url: str, *, model: str, seconds: float = 120.0, max_tokens: int = 512, attempts: int = 3
    ) -> None:
        key = os.environ.get(KEY_VARIABLE)
        self._chat = Chat(url, model, key, max_tokens=max_tokens, timeout_seconds=seconds, attempts=attempts)

    async def ask(self, prompt: str, *, temperature: float = 0.0) -> str:
        """The reply to one message; EndpointError after a bounded number of attempts."""
        try:
            return await self._chat.ask(prompt, temperature=temperature)
        except ChatError as error:
            attempts = self._chat.attempts
            raise EndpointError(f"{self._chat.base_url} did not answer in {attempts} attempts: {error}") from error
