"""Each service starts alone with its own command, answers health and reflection, and says in one line what is wrong."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_process import PROGRAMS, SERVICES, Running, StartService

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct"

Settings = dict[str, object]
Needs = dict[str, Settings]


@pytest.fixture(scope="module")
def needs(tmp_path_factory: pytest.TempPathFactory) -> Needs:
    """What each service needs to be told: never where another service or the queue is."""
    scratch = tmp_path_factory.mktemp("scratch")
    return {
        "env": {"state_directory": scratch / "state"},
        "inference": {"admin.port": 0, "model.path": MODEL, "backend": "transformers", "updates.staging": scratch},
        "evaluator": {},
        "rollout": {"payloads.uri": scratch.as_uri()},
        "trainer": {},
    }


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, start_service: StartService, needs: Needs) -> Running:
    return start_service(request.param, needs[request.param])


def test_a_service_alone_is_alive_and_ready(service: Running) -> None:
    with grpc.insecure_channel(service.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for asked in ("", SERVICES[service.name]):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=asked), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_service_alone_names_its_contract_by_reflection(service: Running) -> None:
    with grpc.insecure_channel(service.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([ask]), timeout=10)
    assert SERVICES[service.name] in {each.name for each in answer.list_services_response.service}


def test_every_service_s_readme_opens_with_its_command() -> None:
    for name in SERVICES:
        assert f"webagent-{name}" in (ROOT / "services" / name / "README.md").read_text()


def refused(name: str, given: Settings) -> str:
    """The one line with which a service refuses to start."""
    options = [f"--set={key}={value}" for key, value in given.items()]
    command = [PROGRAMS / f"webagent-{name}", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith(f"{name}: ")]
    return line


@pytest.mark.parametrize("name", SERVICES)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(name: str, needs: Needs) -> None:
    assert "server.drain_seconds" in refused(name, {**needs[name], "server.drain_second": 1})


# Two of them import for seconds before they bind.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in {"inference", "trainer"} else []) for name in SERVICES],
)
def test_a_port_in_use_is_named(name: str, needs: Needs) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is in use" in refused(name, {**needs[name], "server.port": port})
