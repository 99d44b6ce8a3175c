"""A tiny Llama on disk, a learner of one rank, and a real queue."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from webagent_runtime.config import QueueConfig
from webagent_runtime.queue import Queue
from webagent_runtime.testing import NatsServer, nats_server
from webagent_trainer.crew import Crew, join
from webagent_trainer.testing import ACK_SECONDS, write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    join(60)
    crew = Crew()
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    """Of one module: replicas that another's tests were about have said nothing here."""
    with nats_server() as server:
        yield server


@pytest.fixture
async def queue(nats: NatsServer) -> AsyncIterator[Queue]:
    queue = await Queue.connect(QueueConfig(url=nats.url, ack_wait_seconds=ACK_SECONDS), name="test")
    await queue.ensure()
    yield queue
    await queue.close()
