"""The loaded model with everything around it, and the place where the servicers find it once it is there."""

import asyncio
from dataclasses import dataclass

import structlog
from webagent_runtime.config import ConfigError

from webagent_inference import errors
from webagent_inference.backend import Backend
from webagent_inference.chat import Chat
from webagent_inference.config import InferenceConfig
from webagent_inference.modeldir import Shape
from webagent_inference.policy import Policy
from webagent_inference.weights import Updater

log = structlog.get_logger()


@dataclass(frozen=True)
class Core:
    """What a replica serves with."""

    chat: Chat
    policy: Policy
    updater: Updater

    @classmethod
    async def load(cls, config: InferenceConfig) -> "Core":
        """Loads tokenizer and model within `engine.start_seconds`."""
        chat = await asyncio.to_thread(Chat.load, config.model.path, config.model.name)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(config.engine.start_seconds):
                backend = await _start_backend(config, chat)
        except TimeoutError:
            message = f"the model was not loaded within engine.start_seconds={config.engine.start_seconds:g}"
            raise ConfigError(message) from None
        log.info("model_loaded", backend=config.backend, seconds=round(loop.time() - started, 1))
        policy = Policy(backend, config.limits, vocab_size=chat.vocab_size, max_context=config.engine.max_context)
        updater = Updater(policy, config.model.path, config.updates, threads=config.engine.thread_count)
        return cls(chat, policy, updater)


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
    shape = Shape.read(config.model.path)
    engine = config.engine
    if 0 < shape.longest_context < engine.max_context:
        message = f"engine.max_context is {engine.max_context}, the model was made for {shape.longest_context} tokens"
        raise ConfigError(message)
    needed = shape.cached_values_per_token * (bytes_per_value or 0) * engine.max_context
    if config.backend == "vllm" and needed > engine.cache_bytes:
        message = f"engine.cache_bytes is {engine.cache_bytes}, one sequence of engine.max_context needs {needed}"
        raise ConfigError(message)


async def _start_backend(config: InferenceConfig, chat: Chat) -> Backend:
    from webagent_inference.precision import bytes_per_cached_value  # noqa: PLC0415

    check_size(config, bytes_per_cached_value(config.engine))
    # Imported by need: either one may be missing on a machine, and both are heavy.
    if config.backend == "vllm":
        from webagent_inference.vllm_backend import VllmBackend  # noqa: PLC0415

        return await VllmBackend.start(config.model.path, config.engine, chat.end_tokens)
    from webagent_inference.transformers_backend import TransformersBackend  # noqa: PLC0415

    return await TransformersBackend.start(config.model.path, config.engine, chat.end_tokens)
