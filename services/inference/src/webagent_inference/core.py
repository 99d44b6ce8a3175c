"""The loaded model with everything around it, and the place where the servicers find it once it is there."""

import asyncio
from dataclasses import dataclass

import structlog
from webagent_runtime.config import ConfigError

from webagent_inference import errors
from webagent_inference.backend import Backend
from webagent_inference.chat import Chat
from webagent_inference.codec import ByteCodec, Codec
from webagent_inference.config import InferenceConfig
from webagent_inference.modeldir import Shape
from webagent_inference.policy import Policy
from webagent_inference.weights import Updater

log = structlog.get_logger()


@dataclass(frozen=True)
class Core:
    """What a replica serves with."""

    config: InferenceConfig
    chat: Codec
    policy: Policy
    updater: Updater

    async def restore(self) -> None:
        """Starts another engine in the place of one that died."""
        async with asyncio.timeout(self.config.engine.start_seconds):
            await self.updater.restore(lambda: _start_backend(self.config, self.chat))

    @classmethod
    async def load(cls, config: InferenceConfig) -> "Core":
        """Loads tokenizer and model within `engine.start_seconds`."""
        codec = await asyncio.to_thread(_codec, config)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(config.engine.start_seconds):
                backend = await _start_backend(config, codec)
        except TimeoutError:
            message = f"the model was not loaded within engine.start_seconds={config.engine.start_seconds:g}"
            raise ConfigError(message) from None
        log.info("model_loaded", backend=config.backend, seconds=round(loop.time() - started, 1))
        # A few more than the engine decodes at once, so that it never waits for the next one to be handed to it.
        slots = config.engine.max_sequences + (config.engine.max_sequences // 8 + 1 if config.loads_weights else 0)
        policy = Policy(
            backend, config.limits, slots=slots, vocab_size=codec.vocab_size, max_context=config.max_context
        )
        base = config.model.path if config.loads_weights else None
        updater = Updater(policy, base, config.updates, threads=config.engine.thread_count)
        return cls(config, codec, policy, updater)


class Slot:
    """Empty while the model loads."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._core: Core | None = None

    def fill(self, core: Core) -> None:
        """From here on calls are served."""
        self._core = core

    @property
    def core(self) -> Core:
        """What to serve with; UNAVAILABLE while it loads."""
        if self._core is None:
            raise errors.loading(self._retry_seconds)
        return self._core


def check_size(config: InferenceConfig, bytes_per_value: int | None) -> None:
    """ConfigError unless model, context and, with `bytes_per_value` on CPU, the cache fit each other."""
    shape = Shape.read(config.directory)
    engine = config.engine
    if 0 < shape.longest_context < engine.max_context:
        message = f"engine.max_context is {engine.max_context}, the model was made for {shape.longest_context} tokens"
        raise ConfigError(message)
    needed = shape.cached_values_per_token * (bytes_per_value or 0) * engine.max_context
    if config.backend == "vllm" and bytes_per_value is not None and shape.tied:
        # vLLM on CPU changes only one side of tied embeddings when it reloads; each canary would find that out.
        log.warning("new_weights_will_be_refused", why="config.json ties the embeddings: export the model untied")
    if config.backend == "vllm" and needed > engine.cache_bytes:
        message = f"engine.cache_bytes is {engine.cache_bytes}, one sequence of engine.max_context needs {needed}"
        raise ConfigError(message)


def _codec(config: InferenceConfig) -> Codec:
    if config.model.path is None:
        return ByteCodec(config.model_id)
    return Chat.load(config.model.path, config.model_id)


async def _start_backend(config: InferenceConfig, codec: Codec) -> Backend:
    # Imported by need: any of them may be missing on a machine, and some are heavy.
    if config.backend == "scripted":
        from webagent_inference.scripted_backend import ScriptedBackend  # noqa: PLC0415

        assert isinstance(codec, ByteCodec)
        return ScriptedBackend(config.script, codec)
    if config.backend == "openai":
        from webagent_inference.openai_backend import OpenAiBackend  # noqa: PLC0415

        return await OpenAiBackend.start(config.openai, codec)
    if config.backend == "vllm-grpc":
        from webagent_inference.remote_backend import RemoteBackend  # noqa: PLC0415

        return await RemoteBackend.start(config.remote, codec.end_tokens, codec.vocab_size)
    from webagent_inference.precision import bytes_per_cached_value  # noqa: PLC0415

    check_size(config, bytes_per_cached_value(config.engine))
    if config.backend == "vllm":
        from webagent_inference.vllm_backend import VllmBackend  # noqa: PLC0415

        return await VllmBackend.start(config.directory, config.engine, codec.end_tokens)
    from webagent_inference.transformers_backend import TransformersBackend  # noqa: PLC0415

    return await TransformersBackend.start(config.directory, config.engine, codec.end_tokens)
