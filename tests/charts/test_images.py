"""Images and the compose file: pinned, without root, installed by one script, configured in the services' own words."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import chart_tools
import charts
import pytest
import yaml
from chart_configs import MODELS
from webagent_runtime.config import load

COMPOSE = yaml.safe_load((charts.ROOT / "docker-compose.yaml").read_text())["services"]


def dockerfile(name: str) -> str:
    return (charts.ROOT / "services" / name / "Dockerfile").read_text()


@pytest.mark.parametrize("name", charts.SERVICES)
def test_a_dockerfile_passes_lint(name: str) -> None:
    file = charts.ROOT / "services" / name / "Dockerfile"
    done = subprocess.run([chart_tools.hadolint(), file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", charts.SERVICES)
def test_an_image_is_installed_by_the_script_that_setup_calls(name: str) -> None:
    text = dockerfile(name)
    assert "scripts/install.sh locked" in text
    assert "scripts/install.sh packages" in text
    assert not re.search(r"pip\S* install", text)
    assert "scripts/install.sh" in (charts.ROOT / "scripts" / "setup.sh").read_text()


@pytest.mark.parametrize("name", charts.SERVICES)
def test_every_file_that_a_dockerfile_copies_reaches_the_builder(name: str) -> None:
    kept = [line[1:] for line in (charts.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for sources in re.findall(r"^COPY (?!--from)(.+)$", dockerfile(name), re.MULTILINE):
        for source in sources.split()[:-1]:
            assert (charts.ROOT / source).exists(), source
            assert any(source == each or source.startswith(f"{each}/") for each in kept), source


@pytest.mark.parametrize("name", ["inference", "trainer"])
def test_what_computes_has_a_cpu_and_a_cuda_target(name: str) -> None:
    targets = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile(name), re.MULTILINE)
    assert {"cpu", "cuda"} <= set(targets)
    assert targets[-1] == "cpu"


@pytest.mark.parametrize("name", charts.SERVICES)
def test_compose_configures_a_service_in_its_own_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"WEBAGENT_{name.upper()}"
    given = COMPOSE[name]["environment"]
    assert all(key.startswith(prefix) or key == "HOME" for key in given)
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    config: Any = load(MODELS[name], None, env_prefix=prefix)
    ports = [int(each.rpartition(":")[2]) for each in COMPOSE[name]["ports"]]
    assert ports == [config.server.port]
    if name == "rollout":
        assert {config.env.target, config.inference.target, config.evaluator.target} == {
            "env:50051",
            "inference:50052",
            "evaluator:50053",
        }


def test_compose_gives_no_service_more_than_it_needs() -> None:
    for name, service in COMPOSE.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only") or name == "volumes", name
        assert not {"privileged", "network_mode", "pid", "ipc"} & service.keys() or service["network_mode"] == "none"
        assert not service["image"].endswith(":latest"), name
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ())), name


def test_compose_ends_env_later_than_it_drains() -> None:
    env = COMPOSE["env"]
    assert (
        float(env["environment"]["WEBAGENT_ENV__SERVER__DRAIN_SECONDS"])
        < 15 * 60
        == int(env["stop_grace_period"][:-1]) * 60
    )


def test_inference_finds_the_compiler_without_which_vllm_samples_slowly() -> None:
    run = dockerfile("inference").split(" AS run\n")[1]
    assert "install -y --no-install-recommends g++ " in run.split("\nFROM ")[0]
