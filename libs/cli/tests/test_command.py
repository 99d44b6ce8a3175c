"""The real command, as a person types it: instant help, dry runs, and one-line errors."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WEBAGENT = Path(sys.executable).parent / "webagent"
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WEBAGENT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "160", **environment},
    )


def refused(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line of an error that a person can mend."""
    assert answer.returncode == 2, answer.stderr
    assert "Traceback" not in answer.stderr
    lines = answer.stderr.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def model_like(directory: Path) -> Path:
    """A model directory whose weights are cut short."""
    directory.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (directory / name).write_text("{}")
    header = b'{"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}'
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    return directory


def test_help_is_instant_and_imports_no_torch() -> None:
    begun = time.monotonic()
    assert "train" in run("--help").stdout
    assert time.monotonic() - begun < 5
    program = "import sys, webagent_cli.main; assert not {'torch', 'grpc', 'vllm'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_dry_run_prints_the_plan_and_starts_nothing(path: Path, tmp_path: Path) -> None:
    answer = run("train", str(path), "--dry-run", "--runs", str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    assert "Memory estimate" in answer.stdout
    assert "trainer, each rank" in answer.stdout
    assert "-m webagent_trainer" in answer.stdout or "webagent-trainer --config" in answer.stdout
    assert "config/rollout.yaml" in answer.stdout
    assert not any(tmp_path.iterdir())


def test_an_unknown_task_is_refused() -> None:
    assert "did you mean 'click-button'" in refused(run("train", "--set", "tasks.ids=[click-buton]"))


@pytest.mark.parametrize("command", [("demos",), ("train",), ("eval", "--expert"), ("play", "click-color", "--expert")])
def test_a_task_without_an_expert_is_refused_before_anything_starts(command: tuple[str, ...], tmp_path: Path) -> None:
    tasks = [] if command[0] == "play" else ["--set", "tasks.ids=[click-button, click-color]"]
    line = refused(run(*command, *tasks, "--runs", str(tmp_path)))
    assert "no scripted expert plays click-color of miniwob" in line
    assert not list(tmp_path.glob("*/logs/*"))


def test_an_unknown_key_is_refused() -> None:
    assert "nearest known key is agent.prompt" in refused(run("train", "--set", "agent.promt=compact"))


def test_a_contradiction_is_refused() -> None:
    assert "overlap rl.seeds" in refused(run("train", "--set", "eval.seeds.first=100000"))


def test_a_missing_configuration_is_refused() -> None:
    assert "configs/" in refused(run("train", "no-such.yaml"))


def test_a_queue_that_is_not_there_is_not_provisioned() -> None:
    brief = ("--set", "wait_seconds=0", "--set", "queue.connect_timeout=0.2")
    answer = run("queue", "provision", "--url", "nats://127.0.0.1:1", *brief)
    assert answer.returncode == 2
    assert "NATS at nats://127.0.0.1:1 cannot be reached" in answer.stderr.splitlines()[-1]


def test_only_one_can_play_an_evaluation() -> None:
    assert "one plays" in refused(run("eval", "--expert", "--random"))


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(run("up", "--runs", str(tmp_path), "--set", f"stack.ports.env={port}"))
    assert f"port {port} is in use" in line
    assert "stack.ports.env" in line


def test_a_missing_chromium_is_refused(tmp_path: Path) -> None:
    model = ROOT / "models" / "smollm2-135m-instruct"
    if not model.is_dir():
        pytest.skip("needs the prepared model")
    line = refused(run("train", "--runs", str(tmp_path), "--set", f"stack.env.browser.executable={tmp_path}/none"))
    assert "chromium" in line
    assert "apt-get install chromium" in line


def test_a_missing_model_directory_is_refused(tmp_path: Path) -> None:
    missing = ["--set", f"model.path={tmp_path}/none", "--set", "model.prepare=null"]
    assert "is missing" in refused(run("train", "--runs", str(tmp_path), *missing))


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    model = model_like(tmp_path / "model")
    line = refused(run("train", "--runs", str(tmp_path / "runs"), "--set", f"model.path={model}"))
    assert "truncated" in line


def test_an_unknown_run_is_refused(tmp_path: Path) -> None:
    assert "no run 'nope'" in refused(run("ledger", "nope", "--runs", str(tmp_path)))
    assert "no run 'nope'" in refused(run("report", "nope", "--runs", str(tmp_path)))


def test_the_doctor_says_how_to_get_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    answer = run("doctor", "--set", f"model.path={tmp_path}/none", "--set", "model.prepare=null", PATH=str(empty))
    assert answer.returncode == 2
    assert "put the model there or set model.path" in answer.stdout
    assert shutil.which("chromium") is None or "chromium" in answer.stdout
