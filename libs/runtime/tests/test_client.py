"""The client side: a deadline always, retries where the contract allows, one owner for each key."""

import grpc
import pytest
from google.protobuf import descriptor_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from webagent.env.v1 import env_pb2, env_pb2_grpc, probe_pb2  # noqa: F401  registers the descriptors
from webagent.evaluator.v1 import evaluator_pb2  # noqa: F401
from webagent.inference.v1 import inference_pb2  # noqa: F401
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trainer.v1 import trainer_pb2  # noqa: F401
from webagent_runtime.client import IDEMPOTENT, open_channel, pick_address
from webagent_runtime.config import ClientConfig, ConfigError
from webagent_runtime.errors import ServiceError, from_rpc
from webagent_runtime.testing import free_port


async def test_a_call_without_a_timeout_is_a_programming_error(serve):
    server = await serve()
    async with open_channel(server.address) as channel:
        with pytest.raises(TypeError, match="GetCapabilities needs a deadline"):
            env_pb2_grpc.EnvironmentServiceStub(channel).GetCapabilities(env_pb2.GetCapabilitiesRequest())
        with pytest.raises(TypeError, match="RunEpisode needs a deadline"):
            rollout_pb2_grpc.RolloutServiceStub(channel).RunEpisode(rollout_pb2.RunEpisodeRequest())


async def test_an_idempotent_call_is_tried_again_while_the_server_is_unavailable(serve, env):
    server = await serve()
    env.unavailable = 2
    async with open_channel(server.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        assert (await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=10)).capacity == 4
    assert env.calls == 3


async def test_any_other_call_is_made_once(serve):
    server = await serve()
    async with open_channel(server.address) as channel:
        call = rollout_pb2_grpc.RolloutServiceStub(channel).RunEpisode(rollout_pb2.RunEpisodeRequest(), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [event async for event in call]
    assert from_rpc(caught.value).reason == "DRAINING"


async def test_an_idempotent_call_survives_a_restart_of_its_server(serve, env):
    port = free_port()
    first = await serve(port=port)
    async with open_channel(first.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=5)
        await first.stop(0)
        await serve(port=port)
        answer = await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=10, wait_for_ready=True)
    assert answer.capacity == 4


async def test_a_server_that_is_not_there_is_unavailable(serve):
    async with open_channel(f"127.0.0.1:{free_port()}") as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateSession(env_pb2.CreateSessionRequest(), timeout=10)
    error = from_rpc(caught.value)
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")


def test_every_idempotent_method_is_in_the_contracts():
    pool = descriptor_pool.Default()
    for service, methods in IDEMPOTENT.items():
        known = set(pool.FindServiceByName(service).methods_by_name)
        assert set(methods) <= known


TARGET = "127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"


@settings(deadline=None, max_examples=40)
@given(st.text(min_size=1))
async def test_a_key_keeps_its_owner_when_another_replica_leaves(key):
    owner = await pick_address(TARGET, key)
    left = [address for address in TARGET.split(",") if address != owner]
    without_one_other = ",".join([owner, left[0]])
    assert await pick_address(without_one_other, key) == owner


@settings(deadline=None, max_examples=40)
@given(st.text())
async def test_refusals_lead_to_every_other_address_before_they_lead_back(key):
    order = [await pick_address(TARGET, key, refusals=number) for number in range(4)]
    assert set(order[:3]) == set(TARGET.split(","))
    assert order[3] == order[0]


async def test_keys_spread_over_all_replicas():
    owners = [await pick_address(TARGET, f"session-{number}") for number in range(300)]
    assert min(owners.count(address) for address in TARGET.split(",")) > 60


async def test_names_are_resolved():
    assert await pick_address("dns:///localhost:50051", "a") in {"127.0.0.1:50051", "[::1]:50051"}


async def test_a_name_that_does_not_resolve_is_unavailable():
    with pytest.raises(ServiceError) as caught:
        await pick_address("no-such-host.invalid:1", "a")
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "NAME_NOT_RESOLVED")


async def test_a_target_without_a_port_is_named():
    with pytest.raises(ConfigError, match="write host:port"):
        await pick_address("localhost", "a")


async def test_a_missing_token_file_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match="token_file"):
        open_channel("127.0.0.1:1", ClientConfig(token_file=tmp_path / "none"))
