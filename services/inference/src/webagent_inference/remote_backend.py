"""A policy on a vLLM that runs elsewhere and serves its own gRPC (`vllm serve --grpc`).

That service takes and gives token ids and log-probabilities, so it is as good as an engine in this process, but for its
weights: it has no call that changes them. Replies are always streamed, so that an interruption keeps what there is. A
vLLM that is away may come back; its absence is an error of each call, not the end of this service.
"""

from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
from smg_grpc_proto import vllm_engine_pb2 as vllm  # type: ignore[import-untyped,unused-ignore]
from smg_grpc_proto import vllm_engine_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError

from webagent_inference import errors
from webagent_inference.backend import FULL, Ability, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.config import RemoteConfig
from webagent_inference.fixed_weights import FixedWeights

RETRY_SECONDS = 2.0
# The service itself bounds each call; this only keeps one that was forgotten from staying for ever.
CALL_SECONDS = 3600.0
_SEED_MASK = (1 << 31) - 1
_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH}


class RemoteBackend(FixedWeights):
    """A channel to one vLLM."""

    abilities = FULL - {Ability.WEIGHTS}

    def __init__(self, config: RemoteConfig, channel: grpc.aio.Channel, end_tokens: Sequence[int]) -> None:
        super().__init__()
        self._config = config
        self._channel = channel
        self._stub: Any = vllm_engine_pb2_grpc.VllmEngineStub(channel)
        self._end_tokens = list(end_tokens)

    @classmethod
    async def start(cls, config: RemoteConfig, end_tokens: Sequence[int], vocab_size: int) -> "RemoteBackend":
        """Connects; ConfigError unless the model there is the one whose tokenizer is here."""
        channel = open_channel(config.target)
        backend = cls(config, channel, end_tokens)
        try:
            info = await backend._stub.GetModelInfo(vllm.GetModelInfoRequest(), timeout=config.connect_seconds)
        except grpc.aio.AioRpcError as error:
            await channel.close()
            raise ConfigError(f"remote.target {config.target}: {error.details()}") from error
        if info.vocab_size and info.vocab_size != vocab_size:
            await channel.close()
            message = f"the model there has {info.vocab_size} tokens, the one in model.path {vocab_size}"
            raise ConfigError(f"remote.target {config.target}: {message}")
        return backend

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend."""
        request = vllm.GenerateRequest(
            request_id=request_id,
            tokenized=vllm.TokenizedInput(input_ids=prompt),
            sampling_params=self._parameters(sampling),
            stream=True,
        )
        heard = _Heard(sink)
        try:
            complete = await self._in_flight.run(self._stream(request, heard))
        except Interrupted:
            return Sample(heard.token_ids, heard.logprobs, Finish.INTERRUPTED, heard.cached_tokens)
        finish = _FINISH.get(complete.finish_reason)
        if finish is None or len(heard.logprobs) != len(heard.token_ids):
            raise errors.upstream_failed(f"{self._config.target}: ended with {complete.finish_reason}", RETRY_SECONDS)
        return Sample(heard.token_ids, heard.logprobs, finish, complete.cached_tokens, self._fault(sampling))

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend."""
        request = vllm.GenerateRequest(
            request_id="score",
            tokenized=vllm.TokenizedInput(input_ids=[*prompt, *token_ids]),
            sampling_params=vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0),
        )
        complete = await self._in_flight.run(self._stream(request, _Heard(None)))
        values = [each.value for each in complete.input_logprobs.token_logprobs][len(prompt) :]
        if len(values) != len(token_ids):
            raise errors.upstream_failed(f"{self._config.target}: gives no scores", RETRY_SECONDS)
        return values

    async def close(self) -> None:
        """See Backend."""
        await self._channel.close()

    def _parameters(self, sampling: Sampling) -> Any:
        return vllm.SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=None if sampling.seed is None else sampling.seed & _SEED_MASK,
            stop_token_ids=self._end_tokens,
            logprobs=0,
        )

    def _fault(self, sampling: Sampling) -> str:
        if self._config.logprobs == "processed" or (sampling.temperature in {0.0, 1.0} and sampling.top_p == 1):
            return ""
        return "the log-probabilities are from before temperature; start vLLM with --logprobs-mode processed_logprobs"

    async def _stream(self, request: Any, heard: "_Heard") -> Any:
        """Hears a reply to its end; the message that ends it."""
        try:
            async for response in self._stub.Generate(request, timeout=CALL_SECONDS):
                # The last message repeats the last tokens, which have been heard.
                if response.WhichOneof("response") == "complete":
                    return response.complete
                heard(response.chunk)
        except grpc.aio.AioRpcError as error:
            raise _failure(error, self._config.target) from error
        raise errors.upstream_failed(f"{self._config.target}: the reply was not ended", RETRY_SECONDS)


class _Heard:
    """Tokens so far."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.cached_tokens = 0

    def __call__(self, chunk: Any) -> None:
        token_ids, logprobs = list(chunk.token_ids), list(chunk.output_logprobs.token_logprobs)
        self.token_ids += token_ids
        self.logprobs += logprobs
        self.cached_tokens = chunk.cached_tokens
        if self._sink is not None and token_ids:
            self._sink(token_ids, logprobs)


def _failure(error: grpc.aio.AioRpcError, target: str) -> ServiceError:
    message = f"{target}: {error.details()}"
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return errors.upstream_refused(message)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.upstream_busy(message, RETRY_SECONDS)
    return errors.upstream_failed(message, RETRY_SECONDS)
