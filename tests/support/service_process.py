"""Starts a service as its user would, on a free port, for tests of several packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from webagent_runtime.testing import free_port

SERVICES = {
    "env": "webagent.env.v1.EnvironmentService",
    "inference": "webagent.inference.v1.InferenceService",
    "evaluator": "webagent.evaluator.v1.EvaluatorService",
    "rollout": "webagent.rollout.v1.RolloutService",
    "trainer": "webagent.trainer.v1.TrainerService",
}
PROGRAMS = Path(sys.executable).parent
START_SECONDS = 90
STOP_SECONDS = 30


@dataclass(frozen=True)
class Running:
    """A service process that is ready."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    log: Path


StartService = Callable[..., Running]


@contextmanager
def running_service(
    name: str, log: Path, settings: Mapping[str, object], programs: Path = PROGRAMS, health: int | None = None
) -> Iterator[Running]:
    """Starts `webagent-<name>`, waits until it is ready, and ends it with all its processes.

    `health` is the plaintext health port of a server with TLS.
    """
    port = free_port()
    options = [f"--set={key}={value}" for key, value in {"server.port": port, **settings}.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [programs / f"webagent-{name}", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_ready(process, f"127.0.0.1:{health or port}", SERVICES[name], log)
        yield Running(name, f"127.0.0.1:{port}", process, log)
        process.terminate()
        assert process.wait(STOP_SECONDS) == 0, f"{name} did not end well:\n{log.read_text()[-4000:]}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], address: str, service: str, log: Path) -> None:
    """Follows the service's health until it serves; fails at once when the process ends first."""
    with grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 200)]) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=START_SECONDS, wait_for_ready=True)
        threading.Thread(target=lambda: (process.wait(), watch.cancel()), daemon=True).start()
        try:
            for response in watch:
                if response.status == health_pb2.HealthCheckResponse.SERVING:
                    return
        except grpc.RpcError as error:
            ended = f"exit code {process.returncode}" if process.poll() is not None else error.details()
            pytest.fail(f"{service} did not become ready ({ended}):\n{log.read_text()[-4000:]}", pytrace=False)
    pytest.fail(f"{service} ended its health stream:\n{log.read_text()[-4000:]}")
