"""A whole service process: its options, its exit codes, its signals, its logs."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from webagent_runtime.testing import free_port

PROGRAM = '''
import asyncio
from webagent.env.v1 import env_pb2_grpc
from webagent_runtime.config import Config, ServerConfig, TelemetryConfig
from webagent_runtime.server import Server
from webagent_runtime.service import run_service

class Settings(Config):
    """All of it."""
    server: ServerConfig = ServerConfig(port=0)
    telemetry: TelemetryConfig = TelemetryConfig(log_format="json")
    drain_forever: bool = False
    crash: bool = False
    second_server: bool = False

async def serve(config):
    if config.crash:
        raise ValueError("a bug")
    server = Server(config.server, name="demo", version="1")
    server.add(env_pb2_grpc.add_EnvironmentServiceServicer_to_server, env_pb2_grpc.EnvironmentServiceServicer(),
               service="webagent.env.v1.EnvironmentService", scope="env")
    await server.start()
    server.set_ready(True)

    async def drain():
        print("draining", flush=True)
        if config.drain_forever:
            await asyncio.Event().wait()

    if config.second_server:
        admin = Server(ServerConfig(port=0), name="admin", version="1")
        await admin.start()
        print("ready", flush=True)
        await asyncio.gather(server.run(drain), admin.run(drain))
    else:
        print("ready", flush=True)
        await server.run(drain)
    print("done", flush=True)

if __name__ == "__main__":
    run_service(Settings, serve, env_prefix="WEBAGENT_DEMO", name="demo")
'''


@pytest.fixture
def launch(tmp_path: Path):
    """Starts the program; what is left at the end of the test is killed."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_success(launch, signum):
    process = launch()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    output, _ = process.communicate(timeout=20)
    assert output == "draining\ndone\n"
    assert process.returncode == 0


def test_one_signal_reaches_all_servers_of_a_process(launch):
    process = launch("--set", "second_server=true")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert output == "draining\ndraining\ndone\n"


def test_a_second_signal_cuts_the_drain_short(launch):
    process = launch("--set", "drain_forever=true", "--set", "server.drain_seconds=600")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "draining\n"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert output == "done\n"
    assert process.returncode == 0


def test_a_drain_is_bounded(launch):
    process = launch("--set", "drain_forever=true", "--set", "server.drain_seconds=0.2")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=20)
    assert output == "draining\ndone\n"
    assert "drain_ran_out_of_time" in errors


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--set", "server.prot=1"],
            "demo: --set server.prot: unknown key server.prot; the nearest known key is server.port",
        ),
        (["--set", "nonsense"], "demo: --set nonsense: write it as section.key=value"),
        (["--config", "none.yaml"], "demo: none.yaml: no such file; name an existing one with --config"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_code_2(launch, arguments, expected):
    process = launch(*arguments)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (2, f"{expected}\n")


def test_a_port_in_use_is_one_line_and_exit_code_2(launch):
    port = free_port()
    first = launch("--set", f"server.port={port}")
    assert first.stdout.readline() == "ready\n"
    second = launch("--set", f"server.port={port}")
    _, errors = second.communicate(timeout=20)
    assert second.returncode == 2
    assert errors == f"demo: port {port} on 127.0.0.1 is in use; stop what holds it or set another port\n"


def test_a_crash_shows_its_traceback_and_exit_code_1(launch):
    process = launch("--set", "crash=true")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ValueError: a bug" in errors


def test_json_logs_are_one_object_a_line_with_the_services_name(launch):
    process = launch()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["event"] for line in lines] == ["server_started", "draining", "server_stopped"]
    assert {(line["service"], line["level"]) for line in lines} == {("demo", "info")}


def test_help_is_there(launch):
    process = launch("--help")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "WEBAGENT_DEMO__SECTION__KEY" in output
