"""Settings that OpenMP and vLLM take from the environment only. Apply them before torch is imported."""

import os
import shutil

from webagent_inference.config import EngineConfig

# By default OpenMP's idle threads spin for milliseconds. On a machine that has other work for its cores (browsers, a
# trainer) a thread then waits for a partner who waits for the core: measured on 2 busy cores, the same matmuls took
# 200 s instead of 20. These few microseconds bridge the gap between two kernels and no more.
SPIN_COUNT = "10000"


def set_environment(config: EngineConfig) -> None:
    """Sets what the process and the engine's processes start with; GOMP_SPINCOUNT may be set from outside."""
    os.environ["OMP_NUM_THREADS"] = str(config.thread_count)
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    # vLLM would bind one thread to each core but one; on a small machine that leaves half of it idle.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    if config.tensor_parallel == 1:
        # The engine core computes in its own process. It would poll a worker's, on a core that the worker needs.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        # vLLM compiles its sampling, four times as fast as it stands, but fails where there is no compiler.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
