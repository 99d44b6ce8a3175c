"""The services that the tests talk to, as processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from service_process import StartService
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.client import open_channel

TIMEOUT = 60


@pytest.fixture(scope="module")
def address(start_service: StartService) -> str:
    return start_service("evaluator").address


@pytest.fixture
async def evaluator(address: str) -> AsyncIterator[evaluator_pb2_grpc.EvaluatorServiceAsyncStub]:
    async with open_channel(address) as channel:
        yield evaluator_pb2_grpc.EvaluatorServiceStub(channel)


@pytest.fixture(scope="module")
def where(start_service: StartService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Env's address and one of its sessions, on MiniWoB's page "click-button"."""
    address = start_service("env", {"state_directory": tmp_path_factory.mktemp("state")}).address
    with grpc.insecure_channel(address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        task = env_pb2.TaskRef(suite="miniwob", task_id="click-button")
        stub.CreateSession(env_pb2.CreateSessionRequest(session_id="judged", task=task), timeout=TIMEOUT)
        yield address, "judged"
        stub.CloseSession(env_pb2.CloseSessionRequest(session_id="judged"), timeout=TIMEOUT)
