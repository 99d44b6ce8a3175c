"""Loaded by vLLM into the processes of its engine, so that they end with the service however it ends.

vLLM's engine core outlives a parent that was killed: it goes on waiting for requests, with all its memory. Importing
this module in such a process starts a thread that sleeps until the service is gone and then kills the process. It is
imported as part of the service's main module, at the very start of a spawned process, and with vLLM's worker.
"""

import multiprocessing
import os
import select
import signal
import threading

SERVICE_PID = "WEBAGENT_INFERENCE_SERVICE_PID"


class EndsWithService:
    """What vLLM mixes into its worker; it adds nothing, being imported is the point."""


def _end_with(service: int) -> None:
    try:
        watched = os.pidfd_open(service)
    except ProcessLookupError:
        pass
    else:
        select.select([watched], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


# Only in a process that multiprocessing started: the variable may also be inherited by an unrelated one.
if multiprocessing.parent_process() is not None and SERVICE_PID in os.environ:
    _service = int(os.environ[SERVICE_PID])
    threading.Thread(target=_end_with, args=(_service,), name="ends-with-service", daemon=True).start()
