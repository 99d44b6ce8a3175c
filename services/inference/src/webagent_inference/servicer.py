"""The gRPC face of the service: converts, calls, converts back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.server import time_left

from webagent_inference import errors
from webagent_inference.backend import Ability, Finish, Sampling
from webagent_inference.codec import ChatMessage, Identity
from webagent_inference.config import LimitsConfig
from webagent_inference.core import Slot
from webagent_inference.slots import Purpose
from webagent_inference.watch import Stops

Context = grpc.aio.ServicerContext[Any, Any]

_ROLES: dict[int, Any] = {pb.ROLE_SYSTEM: "system", pb.ROLE_USER: "user", pb.ROLE_ASSISTANT: "assistant"}
_CAPABILITIES = {
    Ability.TOKEN_IDS: pb.CAPABILITY_TOKEN_IDS,
    Ability.LOGPROBS: pb.CAPABILITY_LOGPROBS,
    Ability.SCORES: pb.CAPABILITY_SCORE,
    Ability.WEIGHTS: pb.CAPABILITY_WEIGHTS,
    Ability.REPEATABLE: pb.CAPABILITY_REPEATABLE,
}
_FINISH = {Finish.STOP: pb.FINISH_REASON_STOP, Finish.LENGTH: pb.FINISH_REASON_LENGTH}


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Render, Generate, Score, GetModelInfo."""

    def __init__(self, slot: Slot, limits: LimitsConfig, *, backend: str) -> None:
        self._slot = slot
        self._limits = limits
        self._backend = backend
        self.replica = ""

    async def Render(self, request: pb.RenderRequest, context: Context) -> pb.RenderResponse:
        """A conversation as token ids."""
        chat = self._slot.core.chat
        messages = [_message(index, message) for index, message in enumerate(request.messages)]
        prompt = await asyncio.to_thread(chat.prompt, messages)
        reply = chat.reply(request.reply_text) if request.HasField("reply_text") else []
        return pb.RenderResponse(prompt_token_ids=prompt, reply_token_ids=reply, model=_identity(chat.identity))

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """One sampled reply."""
        if not request.request_id:
            raise errors.invalid("request_id is empty")
        core = self._slot.core
        sampling = _sampling(request.sampling)
        stops = Stops(sampling.stop, core.chat.text) if any(sampling.stop) else None
        async with self._bounded(context):
            reply = await core.policy.generate(
                request.request_id,
                request.prompt_token_ids,
                sampling,
                min_version=request.min_weights_version,
                purpose=Purpose.TRAINING if request.purpose == pb.PURPOSE_TRAINING else Purpose.EVALUATION,
                ended=stops.ended if stops is not None else None,
            )
        text = core.chat.text(reply.token_ids)
        return pb.GenerateResponse(
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            logprob_kind=pb.LOGPROB_KIND_PROCESSED if reply.logprobs else pb.LOGPROB_KIND_UNSPECIFIED,
            spans=[pb.WeightsSpan(start=s.start, end=s.end, weights_version=s.version) for s in reply.spans],
            finish_reason=_FINISH[reply.finish],
            text=stops.cut(text) if stops is not None else text,
            sampling=_used(reply.sampling),
            model=_identity(core.chat.identity),
            cached_tokens=reply.cached_tokens,
            degraded=reply.degraded,
        )

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Log-probabilities of given tokens."""
        core = self._slot.core
        async with self._bounded(context):
            scores, version = await core.policy.score(
                request.prompt_token_ids, request.token_ids, min_version=request.min_weights_version
            )
        return pb.ScoreResponse(logprobs=scores, weights_version=version, model=_identity(core.chat.identity))

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, context: Context) -> pb.GetModelInfoResponse:
        """What is served."""
        core = self._slot.core
        policy = core.policy
        return pb.GetModelInfoResponse(
            model=_identity(core.chat.identity),
            backend=self._backend,
            weights_version=policy.version.number,
            manifest_digest=policy.version.digest,
            max_context=policy.max_context,
            vocab_size=policy.vocab_size,
            end_token_ids=core.chat.end_tokens,
            replica=self.replica,
            paused=policy.paused,
            capabilities=sorted(_CAPABILITIES[ability] for ability in policy.backend.abilities),
        )

    @asynccontextmanager
    async def _bounded(self, context: Context) -> AsyncIterator[None]:
        """Ends the work, and frees its slot, when the caller's deadline or the service's bound passes."""
        seconds = time_left(context, self._limits.request_seconds)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise errors.deadline_exceeded(seconds) from None


class InferenceAdminServicer(inference_pb2_grpc.InferenceAdminServiceServicer):
    """UpdateWeights, Pause, Resume, ResetCache."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    async def UpdateWeights(self, request: pb.UpdateWeightsRequest, context: Context) -> pb.UpdateWeightsResponse:
        """Applies a version; it goes on when the caller leaves."""
        if not request.version or not request.uri or not request.manifest_digest:
            raise errors.invalid("version, uri and manifest_digest are required")
        core = self._slot.core
        seconds = await core.updater.apply(request.version, request.uri, request.manifest_digest.lower())
        return pb.UpdateWeightsResponse(version=core.policy.version.number, seconds=seconds)

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        """Holds the gate."""
        await self._slot.core.policy.pause()
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        """Opens it again."""
        self._slot.core.policy.resume()
        return pb.ResumeResponse()

    async def ResetCache(self, request: pb.ResetCacheRequest, context: Context) -> pb.ResetCacheResponse:
        """Empties the prefix cache."""
        policy = self._slot.core.policy
        async with policy.held():
            if not await policy.backend.reset_cache():
                raise errors.cache_not_reset()
        return pb.ResetCacheResponse()


def _identity(identity: Identity) -> pb.ModelIdentity:
    return pb.ModelIdentity(
        model_id=identity.model_id, tokenizer_hash=identity.tokenizer_hash, template_hash=identity.template_hash
    )


def _message(index: int, message: pb.Message) -> ChatMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise errors.invalid(f"messages[{index}]: role is not set")
    kind = message.WhichOneof("content")
    if kind is None:
        raise errors.invalid(f"messages[{index}]: neither text nor token_ids is set")
    content: str | Sequence[int] = message.text if kind == "text" else message.token_ids.ids
    return ChatMessage(role, content)


def _sampling(settings: pb.SamplingSettings) -> Sampling:
    return Sampling(
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        top_p=settings.top_p or 1.0,
        seed=settings.seed if settings.HasField("seed") else None,
        stop=tuple(settings.stop),
    )


def _used(sampling: Sampling) -> pb.SamplingSettings:
    return pb.SamplingSettings(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=sampling.stop,
    )
