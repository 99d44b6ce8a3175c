"""The policy on vLLM: AsyncLLM, whose engine core and workers are processes of their own.

Interrupting relies on vLLM's pause(mode="abort"): the engine finishes its step, hands every request what it has, and
holds back whatever arrives meanwhile; it is repeated until nothing is in flight, then resumed empty. (With
mode="keep" the canary could not run before the requests it is to protect: a paused scheduler runs nothing, a resumed
one everything.)
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
import torch
from vllm import AsyncEngineArgs, SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

from webagent_inference.backend import FULL, EngineDeadError, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.config import EngineConfig
from webagent_inference.engine_process import SERVICE_PID, EndsWithService
from webagent_inference.precision import compute_dtype

log = structlog.get_logger()

CPU_BLOCK_TOKENS = 32
_SEED_MASK = (1 << 63) - 1
_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.INTERRUPTED}


class VllmBackend:
    """A running AsyncLLM."""

    abilities = FULL

    def __init__(self, engine: AsyncLLM, end_tokens: Sequence[int]) -> None:
        self.engine: Any = engine
        self._end_tokens = list(end_tokens)
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    async def start(cls, directory: Path, config: EngineConfig, end_tokens: Sequence[int]) -> "VllmBackend":
        """Loads the model."""
        arguments: dict[str, Any] = {}
        if not torch.cuda.is_available():
            # Prefixes are cached in whole blocks; vLLM's 128 on CPU is more than most of what prompts share.
            arguments = {"kv_cache_memory_bytes": config.cache_bytes, "block_size": CPU_BLOCK_TOKENS}
        os.environ[SERVICE_PID] = str(os.getpid())
        engine_arguments = AsyncEngineArgs(
            model=str(directory),
            dtype=compute_dtype(config),
            max_model_len=config.max_context,
            max_num_seqs=config.max_sequences,
            max_num_batched_tokens=config.max_batched_tokens,
            enable_chunked_prefill=config.chunked_prefill,
            enable_prefix_caching=config.prefix_cache,
            enforce_eager=config.eager,
            tensor_parallel_size=config.tensor_parallel,
            gpu_memory_utilization=config.gpu_memory_share,
            # Equal to raw at temperature 1; at any other, the distribution that was sampled from.
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            disable_log_stats=True,
            enable_log_requests=False,
            worker_extension_cls=f"{EndsWithService.__module__}.{EndsWithService.__qualname__}",
            **arguments,
        )
        backend = cls(await asyncio.to_thread(AsyncLLM.from_engine_args, engine_arguments), end_tokens)
        await backend._warm_up()
        return backend

    async def _warm_up(self) -> None:
        """The first requests start the reading of outputs and have sampling and scoring compiled."""
        sampling = Sampling(temperature=1.0, max_tokens=2)
        for rows in (1, 2):
            await asyncio.gather(
                *(self.generate(f"warm-up-{row}", self._end_tokens[:1], sampling) for row in range(rows))
            )
        await self.score(self._end_tokens[:1], self._end_tokens[:1] * 2)

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend."""
        parameters = self.parameters(sampling)
        if sink is not None:
            # Each output then holds all tokens so far.
            parameters.output_kind = RequestOutputKind.CUMULATIVE
        output = await self._run(request_id, prompt, parameters, sink)
        reply = output.outputs[0]
        token_ids = list(reply.token_ids)
        return Sample(token_ids, _logprobs(reply, 0), _FINISH[reply.finish_reason], output.num_cached_tokens or 0)

    def parameters(self, sampling: Sampling) -> SamplingParams:
        """The settings in vLLM's terms."""
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=None if sampling.seed is None else sampling.seed & _SEED_MASK,
            stop_token_ids=self._end_tokens,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend."""
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._run("score", [*prompt, *token_ids], parameters)
        if output.outputs[0].finish_reason == "abort":
            raise Interrupted
        entries = output.prompt_logprobs[len(prompt) :]
        return [float(entry[token].logprob) for entry, token in zip(entries, token_ids, strict=True)]

    async def interrupt(self) -> None:
        """See Backend."""
        try:
            while self._in_flight:
                await self.engine.pause_generation(mode="abort", clear_cache=False)
                try:
                    async with asyncio.timeout(0.1):
                        await self._idle.wait()
                except TimeoutError:
                    # A request that was on its way to the engine when it paused; the next pause aborts it.
                    log.debug("interrupt_repeated", in_flight=self._in_flight)
        finally:
            # Whatever ends the wait, the caller's deadline too: a scheduler that stays paused answers nobody.
            await asyncio.shield(self.engine.resume_generation())

    async def load(self, directory: Path) -> None:
        """See Backend."""
        await self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(directory)})

    async def reset_cache(self) -> bool:
        """See Backend."""
        done = await self.engine.reset_prefix_cache(reset_running_requests=True)
        return bool(done)

    async def died(self) -> str:
        """See Backend."""
        # The task that reads the engine core's outputs ends only with the engine.
        await asyncio.wait({self.engine.output_handler})
        return "vLLM's engine core ended; its log says why"

    async def close(self) -> None:
        """See Backend."""
        await asyncio.to_thread(self.engine.shutdown)

    async def _run(
        self, request_id: str, prompt: Sequence[int], parameters: SamplingParams, sink: Sink | None = None
    ) -> Any:
        """The final output of one request."""
        self._in_flight += 1
        self._idle.clear()
        final: Any = None
        heard = 0
        try:
            async for output in self.engine.generate(tokens_input(list(prompt)), parameters, request_id):
                final = output
                if sink is not None:
                    reply = output.outputs[0]
                    sink(list(reply.token_ids)[heard:], _logprobs(reply, heard))
                    heard = len(reply.token_ids)
        except VllmDeadError as error:
            raise EngineDeadError(str(error)) from error
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        return final


def _logprobs(reply: Any, start: int) -> list[float]:
    """Of the tokens from `start` on."""
    entries, token_ids = list(reply.logprobs or [])[start:], list(reply.token_ids)[start:]
    return [float(entry[token].logprob) for entry, token in zip(entries, token_ids, strict=True)]
