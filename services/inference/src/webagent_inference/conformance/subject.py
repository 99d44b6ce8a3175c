"""The service under test, and what a promise may ask of it."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio
from webagent.inference.v1 import inference_pb2 as pb
from webagent_runtime.errors import ServiceError, from_rpc

if TYPE_CHECKING:
    from webagent.inference.v1.inference_pb2_grpc import InferenceAdminServiceAsyncStub, InferenceServiceAsyncStub

T = TypeVar("T")

STORY = "Write a long story about a fox, a crow and a river."


class BrokenError(Exception):
    """A promise is not kept."""


class CannotError(Exception):
    """A promise cannot be held against this service, for a reason that is no fault."""


def insist(condition: object, message: str) -> None:
    """BrokenError unless the condition holds."""
    if not condition:
        raise BrokenError(message)


@dataclass(frozen=True)
class Subject:
    """A service, by its stubs and what it says of itself; `admin` where administration was given."""

    policy: "InferenceServiceAsyncStub"
    admin: "InferenceAdminServiceAsyncStub | None"
    channel: grpc.aio.Channel
    info: pb.GetModelInfoResponse
    seconds: float

    def can(self, *capabilities: pb.Capability.ValueType) -> bool:
        """Whether the service says that it can."""
        return set(capabilities) <= set(self.info.capabilities)

    async def render(self, *texts: str, **more: Any) -> pb.RenderResponse:
        """A conversation, the user's and the assistant's turns alternating."""
        roles = (pb.ROLE_USER, pb.ROLE_ASSISTANT)
        messages = [pb.Message(role=roles[index % 2], text=text) for index, text in enumerate(texts)]
        return await self.ask(self.policy.Render(pb.RenderRequest(messages=messages, **more), timeout=self.seconds))

    async def prompt(self, text: str = STORY) -> list[int]:
        """The prompt of one question."""
        return list((await self.render(text)).prompt_token_ids)

    async def generate(self, prompt: list[int], *, timeout: float | None = None, **fields: Any) -> pb.GenerateResponse:
        """One reply. `fields` are of the request or of its sampling settings."""
        own = {name: fields.pop(name) for name in ("min_weights_version", "purpose", "request_id") if name in fields}
        settings = pb.SamplingSettings(**{"temperature": 1.0, "max_tokens": 24, **fields})
        request = pb.GenerateRequest(**{"request_id": "conformance", **own}, prompt_token_ids=prompt, sampling=settings)
        return await self.ask(self.policy.Generate(request, timeout=timeout or self.seconds))

    async def score(self, prompt: list[int], token_ids: list[int], **fields: Any) -> pb.ScoreResponse:
        """Log-probabilities of given tokens."""
        request = pb.ScoreRequest(prompt_token_ids=prompt, token_ids=token_ids, **fields)
        return await self.ask(self.policy.Score(request, timeout=self.seconds))

    async def ask(self, call: Awaitable[T]) -> T:
        """The answer to a call; its error as a ServiceError."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    async def refuses(self, call: Awaitable[Any], code: grpc.StatusCode, reason: str) -> ServiceError:
        """BrokenError unless the call is refused with this code and reason."""
        try:
            await call
        except ServiceError as error:
            insist(
                (error.code, error.reason) == (code, reason),
                f"refused with {error.code.name} {error.reason}, the contract says {code.name} {reason}",
            )
            return error
        raise BrokenError(f"was not refused with {code.name} {reason}")
