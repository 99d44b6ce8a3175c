"""Requests and replies of the OpenAI chat API.

Fields that change what is sampled are honoured or refused; none is passed over. Fields that change nothing of a reply
(user, metadata, store and the like) are.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
from grpc import StatusCode
from pydantic import Field
from webagent_runtime.errors import ServiceError

from webagent_inference import errors
from webagent_inference.backend import Finish, Sampling
from webagent_inference.codec import ChatMessage, Role
from webagent_inference.policy import Reply

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_FINISH = {Finish.STOP: "stop", Finish.LENGTH: "length"}
_TYPES = {
    StatusCode.INVALID_ARGUMENT: (400, "invalid_request_error"),
    StatusCode.UNAUTHENTICATED: (401, "authentication_error"),
    StatusCode.PERMISSION_DENIED: (403, "permission_error"),
    StatusCode.NOT_FOUND: (404, "invalid_request_error"),
    StatusCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    StatusCode.UNAVAILABLE: (503, "service_unavailable_error"),
    StatusCode.DEADLINE_EXCEEDED: (504, "timeout_error"),
}


class TextPart(pydantic.BaseModel):
    """One part of a message; pictures and sound are refused."""

    type: Literal["text"]
    text: str


class Message(pydantic.BaseModel):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def text(self) -> str:
        """The whole text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(pydantic.BaseModel):
    """What a stream holds besides text."""

    include_usage: bool = False


class TextFormat(pydantic.BaseModel):
    """Plain text is the only form of a reply that is left to the policy."""

    type: Literal["text"]


Zero = Annotated[float, Field(ge=0, le=0)]


class ChatRequest(pydantic.BaseModel):
    """A request as far as it bears on the reply. Null means unset, as in the API."""

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    return_token_ids: bool | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    response_format: TextFormat | None = None

    @classmethod
    def read(cls, body: bytes) -> "ChatRequest":
        """INVALID_REQUEST, naming the field, unless the body is a request that can be honoured."""
        try:
            return cls.model_validate_json(body)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise errors.invalid(f"{field or 'body'}: {first['msg']}") from None

    def conversation(self) -> list[ChatMessage]:
        """The messages for the codec."""
        return [ChatMessage(_ROLES[message.role], message.text()) for message in self.messages]

    def sampling(self, room: int) -> Sampling:
        """How to sample; without a bound of its own the reply may fill the context."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            max_tokens=max(1, room) if limit is None else limit,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=None if self.seed is None else self.seed & ((1 << 64) - 1),
            stop=tuple(stop),
        )


class Answer:
    """The reply's objects in their OpenAI form."""

    def __init__(self, request: ChatRequest, identifier: str, fingerprint: str) -> None:
        self._request = request
        self._head = {
            "id": f"chatcmpl-{identifier}",
            "created": int(time.time()),
            "model": request.model,
            "system_fingerprint": fingerprint,
        }

    def whole(self, reply: Reply, text: str, pieces: Sequence[str], prompt: Sequence[int]) -> dict[str, Any]:
        """A reply that is not streamed. `pieces` is the text of each token."""
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "finish_reason": _FINISH[reply.finish],
            "logprobs": None,
            "weights_spans": spans(reply),
        }
        if self._request.logprobs:
            choice["logprobs"] = logprobs(pieces, reply.logprobs)
        if self._request.return_token_ids:
            choice["token_ids"] = reply.token_ids
        answer = self._head | {"object": "chat.completion", "choices": [choice], "usage": usage(prompt, reply)}
        if self._request.return_token_ids:
            answer["prompt_token_ids"] = list(prompt)
        return answer

    def chunk(self, delta: Mapping[str, Any], finish: Finish | None = None, **more: Any) -> dict[str, Any]:
        """A piece of a stream."""
        choice = {"index": 0, "delta": delta, "finish_reason": _FINISH[finish] if finish else None, **more}
        return self._head | {"object": "chat.completion.chunk", "choices": [choice]}

    def last(self, prompt: Sequence[int], reply: Reply) -> dict[str, Any]:
        """The piece that holds the usage."""
        return self._head | {"object": "chat.completion.chunk", "choices": [], "usage": usage(prompt, reply)}


def logprobs(pieces: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    """One entry for each token; no alternatives."""
    entries = [
        {"token": piece, "logprob": value, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece, value in zip(pieces, values, strict=False)
    ]
    return {"content": entries, "refusal": None}


def spans(reply: Reply) -> list[dict[str, int]]:
    """Which weights each run of tokens was sampled from; not part of OpenAI's API."""
    return [{"start": span.start, "end": span.end, "weights_version": span.version} for span in reply.spans]


def usage(prompt: Sequence[int], reply: Reply) -> dict[str, Any]:
    """Tokens of a request."""
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(reply.token_ids),
        "total_tokens": len(prompt) + len(reply.token_ids),
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def refusal(error: ServiceError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of an error."""
    status, kind = _TYPES.get(error.code, (500, "server_error"))
    if error.code is StatusCode.FAILED_PRECONDITION:
        status, kind = 502, "upstream_error"
    body = {"error": {"message": error.message, "type": kind, "param": None, "code": error.reason.lower()}}
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    return status, body, headers
