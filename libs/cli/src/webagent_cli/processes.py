"""The local stack's processes: a supervisord configuration, its keeper, and what is asked of supervisord.

`Processes` starts nothing by itself that outlives it: see keeper.py. supervisord restarts a service that was killed;
a service that ends with a code of its own choosing (0, or 2 for a wrong configuration) stays ended.
"""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from webagent_cli.errors import RunError

LOG_TAIL_LINES = 12
RPC_SECONDS = 10.0
# Stopped group by group from the last to the first: consumers before what they need.
GROUPS = (("queue", ("nats",)), ("services", ("env", "inference", "evaluator")), ("loop", ("rollout", "trainer")))


@dataclass(frozen=True)
class Program:
    """One process of the stack."""

    name: str
    command: tuple[str, ...]
    log: Path
    drain_seconds: float
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ProcessState:
    """What supervisord says of a program. `pid`: 0 while it does not run."""

    name: str
    state: str
    pid: int
    exit_code: int


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log file."""
    if not path.is_file():
        return "(no log)"
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 16384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"


def _quoted(command: tuple[str, ...]) -> str:
    return " ".join("'" + part.replace("'", "'\"'\"'").replace("%", "%%") + "'" for part in command)


def _program_section(program: Program) -> str:
    environment = ",".join(f'{key}="{value.replace("%", "%%")}"' for key, value in program.environment)
    lines = [
        f"[program:{program.name}]",
        f"command={_quoted(program.command)}",
        f"environment={environment}",
        "autostart=false",
        "autorestart=unexpected",
        "exitcodes=0,2",
        "startsecs=0",
        "stopsignal=TERM",
        f"stopwaitsecs={max(1, round(program.drain_seconds + 2))}",
        "stopasgroup=false",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={str(program.log).replace('%', '%%')}",
        "stdout_logfile_maxbytes=0",
    ]
    return "\n".join(lines) + "\n"


def supervisor_conf(programs: list[Program], unix_socket: Path, logs: Path) -> str:
    """A supervisord configuration that runs the programs when asked to."""
    text = (
        f"[unix_http_server]\nfile={unix_socket}\nchmod=0700\n\n"
        f"[supervisord]\nnodaemon=true\nsilent=true\nlogfile={str(logs / 'supervisord.log').replace('%', '%%')}\n"
        f"logfile_maxbytes=0\npidfile={unix_socket}.pid\nnocleanup=true\n\n"
        "[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n\n"
    )
    known = {program.name for program in programs}
    for priority, (group, members) in enumerate(GROUPS):
        present = [member for member in members if member in known]
        if present:
            text += f"[group:{group}]\nprograms={','.join(present)}\npriority={priority}\n\n"
    return text + "\n".join(_program_section(program) for program in programs)


class _UnixConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(RPC_SECONDS)
        self.sock.connect(self.host)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        # A connection for each call: supervisord closes idle ones.
        connection = _UnixConnection("localhost")
        connection.host = self._path
        return connection


class Processes:
    """The programs under one supervisord under one keeper."""

    def __init__(self, programs: list[Program], logs: Path) -> None:
        self.programs = {program.name: program for program in programs}
        self._logs = logs
        self._directory = Path()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._known: dict[str, ProcessState] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.stop()

    def open(self, *, held: int) -> None:
        """Starts the keeper and supervisord, but no program. Must be called on the main thread, which must live on.

        The keeper inherits the file descriptor `held`, so a lock on it lasts until the last process has ended.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        # Unix socket paths are limited to about 100 bytes, which a run directory may exceed.
        self._directory = Path(tempfile.mkdtemp(prefix="webagent-"))
        conf = self._directory / "supervisord.conf"
        conf.write_text(supervisor_conf(list(self.programs.values()), self._socket, self._logs))
        command = [sys.executable, "-m", "webagent_cli.keeper", str(os.getpid()), str(conf)]
        # A session of its own: Ctrl-C must reach this process alone, which then ends the others in order.
        with (self._logs / "keeper.log").open("ab") as log:
            self._keeper = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(held,),
            )

    @property
    def _socket(self) -> Path:
        return self._directory / "supervisor.sock"

    @property
    def keeper_pid(self) -> int:
        """Root of the stack's process tree."""
        if self._keeper is None:
            raise RunError("the stack has not been started")
        return self._keeper.pid

    def _call(self, method: str, *arguments: object) -> Any:
        proxy = xmlrpc.client.ServerProxy("http://supervisor", transport=_UnixTransport(str(self._socket)))
        return getattr(proxy.supervisor, method)(*arguments)

    def answers(self) -> bool:
        """True once supervisord takes calls; `RunError` if it has ended."""
        if self._keeper is not None and self._keeper.poll() is not None:
            raise RunError(f"supervisord ended: {log_tail(self._logs / 'supervisord.log')}")
        try:
            self._call("getState")
        except OSError:
            return False
        return True

    def start(self, name: str) -> None:
        """Starts one program; idempotent."""
        try:
            self._call("startProcess", self._full_name(name), False)
        except xmlrpc.client.Fault as fault:
            if "ALREADY_STARTED" not in fault.faultString:
                raise RunError(f"{name} cannot be started: {fault.faultString}") from fault

    def end(self, name: str) -> None:
        """Ends one program and waits for it; idempotent."""
        try:
            self._call("stopProcess", self._full_name(name), True)
        except xmlrpc.client.Fault as fault:
            if "NOT_RUNNING" not in fault.faultString:
                raise RunError(f"{name} cannot be ended: {fault.faultString}") from fault

    def states(self) -> dict[str, ProcessState]:
        """What runs, by name; the last known state where supervisord is too busy to answer."""
        try:
            found = self._call("getAllProcessInfo")
        except (OSError, http.client.HTTPException, xmlrpc.client.Fault) as error:
            if isinstance(error, TimeoutError) and self._keeper is not None and self._keeper.poll() is None:
                return self._known
            tail = log_tail(self._logs / "supervisord.log")
            raise RunError(f"the processes of the stack are gone or being ended from outside:\n{tail}") from error
        self._known = {
            info["name"]: ProcessState(info["name"], info["statename"], info["pid"], info["exitstatus"])
            for info in found
        }
        return self._known

    def stop(self) -> None:
        """Ends everything in order, within the programs' bounds; interrupted by Ctrl-C it kills everything."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        bound = 10.0 + sum(program.drain_seconds + 3 for program in self.programs.values())
        try:
            keeper.send_signal(signal.SIGTERM)
            keeper.wait(timeout=bound)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            keeper.send_signal(signal.SIGTERM)
            keeper.wait(timeout=bound)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    @staticmethod
    def _full_name(name: str) -> str:
        group = next(group for group, members in GROUPS if name in members)
        return f"{group}:{name}"
