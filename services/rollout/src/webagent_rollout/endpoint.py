"""The model whose words become training data, at an endpoint such as http://127.0.0.1:8000/v1."""

from __future__ import annotations

import os

from webagent_runtime.chat import Chat

KEY_VARIABLE = "WEBAGENT_ENDPOINT_KEY"


def model_at(url: str, model: str, *, max_tokens: int = 512) -> Chat:
    """The model there. The environment has its key, where it wants one; a reply may take two minutes."""
    return Chat(url, model, os.environ.get(KEY_VARIABLE), max_tokens=max_tokens, timeout_seconds=120.0)
