"""Which replica of inference an episode talks to."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.testing import ScriptedPolicy
from webagent_runtime.config import ServerConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.server import Server

LIMITS = LimitsConfig(outage_seconds=5)


@asynccontextmanager
async def replica() -> AsyncIterator[tuple[ScriptedPolicy, Server]]:
    servicer = ScriptedPolicy()
    server = Server(ServerConfig(port=0), name="inference", version="0")
    add = inference_pb2_grpc.add_InferenceServiceServicer_to_server
    server.add(add, servicer, service="webagent.inference.v1.InferenceService", scope="inference")
    await server.start()
    servicer.address = server.address
    try:
        yield servicer, server
    finally:
        await server.stop(0)


@pytest.fixture
async def replicas() -> AsyncIterator[list[tuple[ScriptedPolicy, Server]]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica()) for _ in range(3)]


def client(replicas: list[tuple[ScriptedPolicy, Server]], key: str, *, training: bool = True) -> InferenceClient:
    target = ",".join(policy.address for policy, _ in replicas)
    return InferenceClient(TargetConfig(target=target), LIMITS, key, training=training)


async def turn(talking: InferenceClient) -> None:
    message = pb.Message(role=pb.ROLE_USER, text="page")
    rendered = await talking.render(pb.RenderRequest(messages=[message]))
    sampling = pb.SamplingSettings(temperature=1.0, max_tokens=4)
    await talking.generate(pb.GenerateRequest(prompt_token_ids=rendered.prompt_token_ids, sampling=sampling))


async def test_an_episode_stays_where_its_prefix_is_and_episodes_spread(
    replicas: list[tuple[ScriptedPolicy, Server]],
) -> None:
    for number in range(24):
        talking = client(replicas, f"episode-{number}", training=number % 2 == 0)
        for _ in range(3):
            await turn(talking)
        await talking.close()
    homes: dict[str, set[int]] = {}
    for index, (policy, _) in enumerate(replicas):
        assert len(policy.requests) >= 9
        for request in policy.requests:
            homes.setdefault(request.session_key, set()).add(index)
            even = int(request.session_key.rpartition("-")[2]) % 2 == 0
            assert request.purpose == (pb.PURPOSE_TRAINING if even else pb.PURPOSE_EVALUATION)
    assert len(homes) == 24
    assert all(len(home) == 1 for home in homes.values())


async def test_an_episode_moves_on_from_a_replica_that_is_full_or_gone(
    replicas: list[tuple[ScriptedPolicy, Server]],
) -> None:
    talking = client(replicas, "episode")
    await turn(talking)
    (home,) = (index for index, (policy, _) in enumerate(replicas) if policy.requests)
    full = ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.01)
    replicas[home][0].faults.extend([full] * 20)
    await turn(talking)
    assert len(replicas[home][0].requests) == 1
    (second,) = (index for index, (policy, _) in enumerate(replicas) if index != home and policy.requests)
    await replicas[second][1].stop(0)
    replicas[home][0].faults.clear()
    await turn(talking)
    assert sum(len(policy.requests) for policy, _ in replicas) == 3
    await talking.close()
