"""The local stack: it starts in order, restarts what was killed, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.errors import RunError
from webagent_cli.processes import Program, supervisor_conf
from webagent_cli.runs import Run, new_run
from webagent_cli.stack import Stack, free_ports
from webagent_runtime.config import ConfigError

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("nats", "evaluator")
HOLDER = """
import sys, time
from pathlib import Path
from webagent_cli.config import load_loop
from webagent_cli.runs import new_run
from webagent_cli.stack import Stack, free_ports
run = new_run(Path(sys.argv[1]), "held", label="held")
with Stack(run, load_loop(Path(sys.argv[2])), ports=free_ports(), services=("nats", "evaluator")) as stack:
    stack.start_all(lambda *_: None)
    print(stack.root_pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def config() -> LoopConfig:
    return load_loop(ROOT / "configs" / "quick.yaml")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return new_run(tmp_path, "tested", label="tested")


def family(root: int) -> list[psutil.Process]:
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def member(root: int, name: str) -> psutil.Process:
    return next(one for one in family(root) if any(name in part for part in one.cmdline()[:3]))


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def test_what_a_stack_started_ends_with_it(run: Run, config: LoopConfig) -> None:
    with Stack(run, config, ports=free_ports(), services=SMALL) as stack:
        stack.start_all(lambda *_: None)
        processes = family(stack.root_pid)
        assert len(processes) == 4
    assert gone(processes)


def test_a_killed_service_comes_back_on_its_port(run: Run, config: LoopConfig) -> None:
    with Stack(run, config, ports=free_ports(), services=SMALL) as stack:
        stack.start_all(lambda *_: None)
        stack.check()
        killed = member(stack.root_pid, "webagent-evaluator")
        killed.kill()
        eventually(lambda: gone([killed]))
        stack.wait_ready("evaluator")
        eventually(lambda: (stack.check(), stack.restarts() == {"evaluator": 1})[1])


def test_a_service_that_keeps_dying_ends_the_run_with_its_log(run: Run, config: LoopConfig) -> None:
    stack_block = config.stack.model_copy(update={"max_restarts": 0})
    impatient = config.model_copy(update={"stack": stack_block})
    with Stack(run, impatient, ports=free_ports(), services=SMALL) as stack:
        stack.start_all(lambda *_: None)
        stack.check()
        member(stack.root_pid, "webagent-evaluator").kill()
        with pytest.raises(RunError, match="evaluator was restarted"):
            eventually(lambda: stack.check() is not None)


def test_a_service_with_a_wrong_configuration_fails_at_once(run: Run, config: LoopConfig) -> None:
    wrong = config.stack.model_copy(update={"evaluator": {"no_such_key": 1}})
    with Stack(run, config.model_copy(update={"stack": wrong}), ports=free_ports(), services=SMALL) as stack:
        begun = time.monotonic()
        with pytest.raises(RunError, match=r"evaluator ended with code 2(.|\n)*no_such_key"):
            stack.start_all(lambda *_: None)
        assert time.monotonic() - begun < 30


def test_a_queue_that_cannot_be_reached_is_named(run: Run, config: LoopConfig) -> None:
    elsewhere = {"queue": {"url": "nats://127.0.0.1:1", "connect_timeout": 1.0}}
    wrong = config.stack.model_copy(update={"rollout": elsewhere})
    with (
        Stack(
            run, config.model_copy(update={"stack": wrong}), ports=free_ports(), services=("nats", "rollout")
        ) as stack,
        pytest.raises(RunError, match=r"rollout ended with code 2(.|\n)*nats://127.0.0.1:1"),
    ):
        stack.start_all(lambda *_: None)


def test_a_run_in_use_is_refused_until_its_processes_have_ended(run: Run, config: LoopConfig) -> None:
    with Stack(run, config, ports=free_ports(), services=SMALL), pytest.raises(ConfigError, match="in use"):
        Stack(run, config, ports=free_ports(), services=SMALL).__enter__()
    with Stack(run, config, ports=free_ports(), services=SMALL) as again:
        assert again.root_pid


@pytest.mark.parametrize("victim", ["command", "keeper", "supervisord"])
def test_nothing_is_left_whoever_is_killed(victim: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", HOLDER, str(tmp_path), str(ROOT / "configs" / "quick.yaml")]
    holder = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        root = int(holder.stdout.readline())
        processes = family(root)
        killed = {"command": holder.pid, "keeper": root, "supervisord": processes[1].pid}[victim]
        assert "supervisord" in " ".join(processes[1].cmdline())
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: gone(processes))
    finally:
        holder.kill()
        holder.communicate(timeout=30)


def test_paths_with_blanks_and_percent_signs_survive_the_configuration() -> None:
    program = Program("env", ("/a b/python", "--config", "/c%d/e.yaml"), Path("/l%g/env.log"), 5.0)
    text = supervisor_conf([program], Path("/run/x.sock"), Path("/l%g"))
    assert "command='/a b/python' '--config' '/c%%d/e.yaml'" in text
    assert "stdout_logfile=/l%%g/env.log" in text


def test_a_supervisor_that_is_frozen_for_a_while_ends_nothing(
    run: Run, config: LoopConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webagent_cli.processes.RPC_SECONDS", 0.5)
    with Stack(run, config, ports=free_ports(), services=SMALL) as stack:
        stack.start_all(lambda *_: None)
        stack.check()
        frozen = member(stack.root_pid, "supervisor.supervisord")
        frozen.suspend()
        try:
            stack.check()
        finally:
            frozen.resume()
        stack.check()
