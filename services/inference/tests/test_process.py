"""The service as a process: how it starts, what stops it from starting, what it leaves behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest


def start(*settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "webagent_inference", *(f"--set={setting}" for setting in settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_missing_model_directory_is_one_line_and_exit_code_2() -> None:
    ended = start("model.path=/nowhere/model")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "webagent_inference.prepare" in ended.stderr


def test_an_unknown_key_names_the_nearest_one() -> None:
    ended = start("modle.path=x")
    assert ended.returncode == 2
    assert "model" in ended.stderr.splitlines()[-1]


def test_a_port_in_use_is_said_before_the_model_is_loaded(model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = start(f"model.path={model}", f"admin.port={port}", "server.port=0")
    assert ended.returncode == 2
    assert f"{port}" in ended.stderr.splitlines()[-1]
    assert "in use" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "named"), [("engine.cache_bytes=2000000", "cache_bytes"), ("engine.max_context=9000", "max_context")]
)
def test_sizes_that_contradict_each_other_are_named_before_the_model_is_loaded(
    model: Path, setting: str, named: str
) -> None:
    ended = start(f"model.path={model}", "server.port=0", "admin.port=0", setting)
    assert ended.returncode == 2
    assert named in ended.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_the_engine_outlives_the_service(model: Path, signum: signal.Signals) -> None:
    settings = [f"model.path={model}", "server.port=0", "admin.port=0", "engine.max_context=512"]
    command = [sys.executable, "-m", "webagent_inference", *(f"--set={setting}" for setting in settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen: list[str] = []
        while "ready  " not in (seen or [""])[-1]:
            seen.append(process.stderr.readline())
            assert seen[-1], "".join(seen)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signum)
        alive = psutil.wait_procs(children, timeout=30)[1]
        for child in alive:
            child.kill()
    assert len(children) >= 2
    assert not alive
    assert process.returncode == (0 if signum is signal.SIGTERM else -signal.SIGKILL)
