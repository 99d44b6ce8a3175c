"""The parts that rollout is tested against: real env and evaluator processes, and a scripted policy by contract."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from webagent.inference.v1 import inference_pb2_grpc
from webagent_rollout.config import LimitsConfig, RolloutConfig, TargetConfig
from webagent_rollout.player import Player
from webagent_rollout.testing import Process, ScriptedPolicy, env_process, evaluator_process
from webagent_runtime.config import PayloadConfig, ServerConfig
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.server import Server

# An example may take as long as a busy machine needs; pytest bounds the whole test.
settings.register_profile("rollout", deadline=None)
settings.load_profile("rollout")


@pytest.fixture(scope="session")
def env() -> Iterator[Process]:
    with TemporaryDirectory(prefix="env-") as directory:
        process = env_process(Path(directory))
        process.start()
        yield process
        process.stop()


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Process]:
    process = evaluator_process()
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def policy() -> AsyncIterator[ScriptedPolicy]:
    servicer = ScriptedPolicy()
    server = Server(ServerConfig(port=0), name="inference", version="0")
    server.add(
        inference_pb2_grpc.add_InferenceServiceServicer_to_server,
        servicer,
        service="webagent.inference.v1.InferenceService",
        scope="inference",
    )
    await server.start()
    servicer.address = server.address
    yield servicer
    await server.stop(0)


@pytest.fixture
def config(env: Process, evaluator: Process, policy: ScriptedPolicy, tmp_path: Path) -> RolloutConfig:
    return RolloutConfig(
        server=ServerConfig(port=0),
        env=TargetConfig(target=env.address),
        inference=TargetConfig(target=policy.address),
        evaluator=TargetConfig(target=evaluator.address),
        payloads=PayloadConfig(uri=tmp_path.as_uri()),
        limits=LimitsConfig(episode_seconds=60, outage_seconds=0.5, lease_seconds=15),
    )


@pytest.fixture
def payloads(config: RolloutConfig) -> PayloadStore:
    return PayloadStore(config.payloads)


@pytest.fixture
async def player(config: RolloutConfig, payloads: PayloadStore) -> AsyncIterator[Player]:
    player = Player(config, payloads)
    yield player
    await player.close()
