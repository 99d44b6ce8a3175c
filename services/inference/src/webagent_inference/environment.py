"""Settings that OpenMP and vLLM take from the environment only. Apply them before torch is imported."""

import os

from webagent_inference.config import EngineConfig

# By default OpenMP's idle threads spin. On a machine that has other work for its cores (browsers, a trainer) a thread
# then waits for a partner who waits for the core: measured on 2 busy cores, the same matmuls took 200 s instead of 20.
WAIT_POLICY = "PASSIVE"


def set_environment(config: EngineConfig) -> None:
    """Sets what the process and the engine's processes start with; OMP_WAIT_POLICY may be set from outside."""
    os.environ["OMP_NUM_THREADS"] = str(config.thread_count)
    os.environ.setdefault("OMP_WAIT_POLICY", WAIT_POLICY)
    # vLLM would bind one thread to each core but one; on a small machine that leaves half of it idle.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
