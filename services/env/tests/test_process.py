"""The service as a process of its own: its start, its errors, and that nothing outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent_env.leftovers import InstanceDirectory, clean_up
from webagent_runtime.testing import free_port


def command(port: int, directory: Path, *settings: str) -> list[str]:
    options = [f"server.port={port}", f"state_directory={directory}", *settings]
    return [sys.executable, "-m", "webagent_env", *(part for option in options for part in ("--set", option))]


def start(port: int, directory: Path, *settings: str) -> subprocess.Popen:
    process = subprocess.Popen(command(port, directory, *settings), stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="webagent.env.v1.EnvironmentService")
        while time.monotonic() < deadline:
            try:
                answer = stub.Check(request, timeout=10, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return process
    raise AssertionError("the service did not start")


def open_session(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        task = env_pb2.TaskRef(suite="miniwob", task_id="click-test")
        request = env_pb2.CreateSessionRequest(session_id="s", task=task)
        env_pb2_grpc.EnvironmentServiceStub(channel).CreateSession(request, timeout=60)


def stop(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def test_sigterm_ends_everything_with_exit_code_0(tmp_path):
    port = free_port()
    process = start(port, tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) > 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0
    assert_gone(family)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_the_whole_group_ends_everything_in_order(tmp_path):
    process = start(free_port(), tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(40) == 0
    assert_gone(family)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_frozen_driver_does_not_stop_the_service_from_ending(tmp_path):
    process = start(free_port(), tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    psutil.Process(process.pid).children()[0].suspend()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert_gone(family)


CLIENT = """
import asyncio, sys
from webagent_env.client import EnvClient
async def play():
    env = EnvClient(sys.argv[1])
    session = await env.open("miniwob/click-checkboxes")
    print("open", flush=True)
    while True:
        await session.act('do(action="Click", element="0")')
asyncio.run(play())
"""


@pytest.mark.slow
def test_a_killed_client_leaves_nothing_after_its_lease(tmp_path):
    port = free_port()
    settings = ("sessions.lease_seconds=2", "sessions.warm_contexts=0")
    process = start(port, tmp_path, *settings)
    service = psutil.Process(process.pid)
    before = len(service.children(recursive=True))
    client = [sys.executable, "-c", CLIENT, f"127.0.0.1:{port}"]
    clients = [subprocess.Popen(client, stdout=subprocess.PIPE) for _ in range(4)]
    for one in clients:
        assert one.stdout.readline() == b"open\n"
    assert len(service.children(recursive=True)) > before
    for one in clients:
        one.kill()
        one.wait(20)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        deadline = time.monotonic() + 30
        # Chromium keeps a process ready for the next page.
        while len(service.children(recursive=True)) > before + 1:
            assert time.monotonic() < deadline
            psutil.wait_procs(service.children(recursive=True), timeout=0.2)
        assert list(stub.ListSessions(env_pb2.ListSessionsRequest(), timeout=20).sessions) == []
    stop(process)


@pytest.mark.slow
def test_two_services_beside_each_other_leave_each_others_browsers_alone(tmp_path):
    ports = [free_port(), free_port()]
    first = start(ports[0], tmp_path)
    open_session(ports[0])
    family = psutil.Process(first.pid).children(recursive=True)
    second = start(ports[1], tmp_path)
    second.kill()
    second.wait(20)
    third = start(ports[1], tmp_path)
    stop(third)
    assert all(process.is_running() for process in family)
    with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        request = env_pb2.ObserveRequest(session_id="s")
        answer = env_pb2_grpc.EnvironmentServiceStub(channel).Observe(request, timeout=60)
    assert answer.observation.text
    stop(first)


def test_sigkill_leaves_no_browser_and_the_next_start_cleans_up(tmp_path):
    port = free_port()
    process = start(port, tmp_path)
    open_session(port)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(20)
    assert_gone(family)
    assert clean_up(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_driver_could_not_end_is_ended_at_the_next_start(tmp_path):
    orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
    script = (
        "import os, psutil, sys; from pathlib import Path; from webagent_env.leftovers import InstanceDirectory;"
        f"InstanceDirectory(Path({str(tmp_path)!r})).record([psutil.Process({orphan.pid})]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    living = InstanceDirectory(tmp_path)
    living.record([psutil.Process(os.getpid())])
    assert clean_up(tmp_path) == 1
    assert orphan.wait(10) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [living.path.name]
    living.remove()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("browser.executable=/nowhere/chromium", "apt-get install chromium"),
        ("browser.executable=/bin/false", "Chromium did not start"),
        ("sessions.capasity=3", "sessions.capacity"),
        ("sessions.lease_seconds=99999", "lease_seconds must not exceed lifetime_seconds"),
    ],
)
def test_what_prevents_a_start_is_said_in_one_line(tmp_path, setting, said):
    ended = subprocess.run(command(0, tmp_path, setting), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("env: ")
    assert said in last


def test_a_port_in_use_is_said_in_one_line(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = subprocess.run(command(port, tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use" in ended.stderr.strip().splitlines()[-1]


def test_the_browsers_own_words_are_in_a_launch_failure(tmp_path):
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho 'no usable sandbox here' >&2\nexit 1\n")
    program.chmod(0o755)
    setting = f"browser.executable={program}"
    ended = subprocess.run(command(0, tmp_path / "s", setting), capture_output=True, text=True, timeout=60, check=False)
    assert "no usable sandbox here" in ended.stderr.strip().splitlines()[-1]


def test_the_service_needs_neither_nats_nor_torch_nor_the_packages_of_miniwob():
    script = (
        "import sys, webagent_env.__main__; from webagent_env.miniwob import MiniWob; MiniWob();"
        "print(sorted({'torch', 'nats', 'miniwob', 'gymnasium', 'selenium'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
