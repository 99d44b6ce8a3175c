"""A chat endpoint that speaks OpenAI's protocol, for text that becomes training data. The environment has its key.

`ask` returns what the endpoint's model says to one prompt, or raises EndpointError after a bounded number of attempts.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request

KEY_VARIABLE = "WEBAGENT_ENDPOINT_KEY"


class EndpointError(Exception):
    """The endpoint did not answer as it should."""


class Endpoint:
    """One model at an endpoint such as http://127.0.0.1:8000/v1."""

    def __init__(
        self, url: str, *, model: str, seconds: float = 120.0, max_tokens: int = 512, attempts: int = 3
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._model = model
        self._seconds = seconds
        self._max_tokens = max_tokens
        self._attempts = attempts

    async def ask(self, prompt: str, *, temperature: float = 0.0) -> str:
        """The reply to one message."""
        return await asyncio.to_thread(self._post, prompt, temperature)

    def _post(self, prompt: str, temperature: float) -> str:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
            "max_tokens": self._max_tokens,
        }
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310  the user's own
        failure: Exception | None = None
        for _ in range(self._attempts):
            try:
                with urllib.request.urlopen(request, timeout=self._seconds) as answer:  # noqa: S310
                    return str(json.loads(answer.read())["choices"][0]["message"]["content"])
            except (urllib.error.URLError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
                failure = error
        raise EndpointError(f"{self._url} did not answer in {self._attempts} attempts: {failure}") from failure
