"""A real server over a real channel: health, reflection, errors, deadlines, bounds, metrics, cancellation."""

import asyncio
import urllib.request

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig, ConfigError, ServerConfig
from webagent_runtime.errors import ServiceError, from_rpc
from webagent_runtime.server import Server, time_left
from webagent_runtime.testing import free_port

ENV = "webagent.env.v1.EnvironmentService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def started(serve):
    return await serve()


@pytest.fixture
async def stub(started):
    async with open_channel(started.address) as channel:
        yield env_pb2_grpc.EnvironmentServiceStub(channel)


async def refusal(call) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def check(address: str, service: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_a_server_is_alive_from_the_start_and_ready_when_told(started):
    assert await check(started.address, "") == SERVING
    assert await check(started.address, ENV) == NOT_SERVING
    started.set_ready(True)
    assert await check(started.address, ENV) == SERVING
    started.set_ready(False)
    assert await check(started.address, ENV) == NOT_SERVING


async def test_health_of_a_service_that_is_not_here_is_not_found(started):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(started.address, "webagent.trainer.v1.TrainerService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_watchers_see_each_change_and_end_with_the_server(started):
    async with grpc.aio.insecure_channel(started.address) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=ENV))
        assert (await watching.read()).status == NOT_SERVING
        started.set_ready(True)
        assert (await watching.read()).status == SERVING
        await asyncio.wait_for(started.stop(60), timeout=10)
        assert await watching.read() is grpc.aio.EOF


async def test_the_health_port_answers_health_only(serve):
    server = await serve(health_port=0)
    address = f"127.0.0.1:{server.health_port}"
    assert await check(address, "") == SERVING
    async with open_channel(address) as channel:
        error = await refusal(
            env_pb2_grpc.EnvironmentServiceStub(channel).GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=5)
        )
    assert error.code is grpc.StatusCode.UNIMPLEMENTED


async def list_services(address: str, stub_path: str) -> list[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(
            f"/{stub_path}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await call.read()
        return [service.name for service in answer.list_services_response.service]


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_reflection_names_the_services(started, version):
    assert ENV in await list_services(started.address, f"grpc.reflection.{version}.ServerReflection")


async def test_reflection_can_be_off(serve):
    server = await serve(reflection=False)
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_service_error_arrives_with_code_reason_message_and_retry_advice(stub):
    error = await refusal(stub.CreateSession(env_pb2.CreateSessionRequest(), timeout=5))
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (error.reason, error.message, error.retry_after) == ("AT_CAPACITY", "all 4 sessions are taken", 1.5)


async def test_the_status_is_googles_with_our_domain(stub):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListTasks(env_pb2.ListTasksRequest(suite="nö"), timeout=5)
    trailers = dict(caught.value.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message) == (grpc.StatusCode.NOT_FOUND.value[0], "no suite 'nö'")
    assert (info.reason, info.domain) == ("SUITE_NOT_FOUND", "webagent")


async def test_a_very_long_message_still_arrives(stub):
    error = await refusal(stub.ListTasks(env_pb2.ListTasksRequest(suite="ö" * 100_000), timeout=5))
    assert error.reason == "SUITE_NOT_FOUND"


async def test_a_bug_is_internal_and_keeps_its_details_to_the_log(stub, caplog):
    error = await refusal(stub.Step(env_pb2.StepRequest(), timeout=5))
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "a bug" not in error.message


async def test_a_method_that_the_servicer_leaves_out_is_unimplemented(stub):
    error = await refusal(stub.RenewLease(env_pb2.RenewLeaseRequest(), timeout=5))
    assert error.code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_gives_its_messages_before_its_error(started):
    async with open_channel(started.address) as channel:
        call = rollout_pb2_grpc.RolloutServiceStub(channel).RunEpisode(rollout_pb2.RunEpisodeRequest(), timeout=5)
        assert [(await call.read()).turn.turn_index for _ in range(2)] == [0, 1]
        error = await refusal(call.read())
    assert (error.reason, error.retry_after) == ("DRAINING", 2.0)


async def test_a_stream_whose_caller_left_ends_at_once_in_its_own_task(started, rollout):
    episode = trajectory_pb2.EpisodeSpec(episode_id="endless")
    async with open_channel(started.address) as channel:
        call = rollout_pb2_grpc.RolloutServiceStub(channel).RunEpisode(
            rollout_pb2.RunEpisodeRequest(episode=episode), timeout=30
        )
        await call.read()
        call.cancel()
        await asyncio.wait_for(rollout.left.wait(), 5)
    began, ended = rollout.tasks
    assert began is ended


async def test_a_call_without_a_deadline_is_refused_by_the_server(started):
    async with grpc.aio.insecure_channel(started.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        error = await refusal(stub.GetCapabilities(env_pb2.GetCapabilitiesRequest()))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "DEADLINE_REQUIRED")


async def test_cancelling_a_call_reaches_the_servicer(stub, env):
    call = stub.CloseSession(env_pb2.CloseSessionRequest(), timeout=30)
    await asyncio.wait_for(env.entered.wait(), 5)
    call.cancel()
    await asyncio.wait_for(env.cancelled.wait(), 5)


async def test_a_passed_deadline_ends_the_servicer(stub, env):
    error = await refusal(stub.CloseSession(env_pb2.CloseSessionRequest(), timeout=0.2))
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(env.cancelled.wait(), 5)


async def test_messages_up_to_the_bound_pass_and_longer_ones_are_refused(serve):
    server = await serve(max_message_bytes=8 * 1024 * 1024)
    async with open_channel(server.address, ClientConfig(max_message_bytes=8 * 1024 * 1024)) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        answer = await stub.Observe(env_pb2.ObserveRequest(session_id="6000000"), timeout=20)
        assert len(answer.observation.text) == 6_000_000
        error = await refusal(stub.Observe(env_pb2.ObserveRequest(session_id="9000000"), timeout=20))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        error = await refusal(stub.ListTasks(env_pb2.ListTasksRequest(suite="x" * 9_000_000), timeout=20))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.Observe(env_pb2.ObserveRequest(session_id="1"), timeout=20)


async def test_stopping_lets_calls_in_flight_end_and_cuts_off_what_lasts_longer(serve, env):
    server = await serve()
    async with open_channel(server.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        ending = asyncio.ensure_future(stub.CloseSession(env_pb2.CloseSessionRequest(), timeout=30))
        await asyncio.wait_for(env.entered.wait(), 5)
        stopping = asyncio.create_task(server.stop(20))
        await asyncio.sleep(0)
        env.release.set()
        assert (await ending).existed
        await asyncio.wait_for(stopping, 10)

        env.entered.clear()
        env.release.clear()
        server = await serve(port=server.port)
        lasting = asyncio.ensure_future(stub.CloseSession(env_pb2.CloseSessionRequest(), timeout=30))
        await asyncio.wait_for(env.entered.wait(), 10)
        await asyncio.wait_for(server.stop(0.1), 10)
        assert (await refusal(lasting)).code in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
        await asyncio.wait_for(env.cancelled.wait(), 5)


@pytest.mark.slow
async def test_a_call_longer_than_many_keepalive_intervals_survives(serve, env):
    # gRPC pings every 10 s at most. A server that minds them ends the connection after about five.
    server = await serve(keepalive_seconds=10)
    async with open_channel(server.address, ClientConfig(keepalive_seconds=10)) as channel:
        call = env_pb2_grpc.EnvironmentServiceStub(channel).CloseSession(env_pb2.CloseSessionRequest(), timeout=100)
        await asyncio.wait({asyncio.ensure_future(env.cancelled.wait())}, timeout=75)
        env.release.set()
        assert (await call).existed


async def test_a_port_in_use_is_one_clear_line(started):
    with pytest.raises(ConfigError, match=rf"^port {started.port} on 127.0.0.1 is in use"):
        await Server(ServerConfig(port=started.port), name="env", version="1").start()


async def test_a_metrics_port_in_use_is_one_clear_line(started):
    with pytest.raises(ConfigError, match=rf"^metrics_port {started.port} on 127.0.0.1 is in use"):
        await Server(ServerConfig(port=0, metrics_port=started.port), name="env", version="1").start()


async def test_a_host_that_is_not_ours_is_one_clear_line():
    with pytest.raises(ConfigError, match="cannot be bound"):
        await Server(ServerConfig(port=0, host="192.0.2.1"), name="env", version="1").start()


async def test_calls_are_counted_by_method_and_code(serve):
    server = await serve(metrics_port=0)
    async with open_channel(server.address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        await refusal(stub.CreateSession(env_pb2.CreateSessionRequest(), timeout=5))
        await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=5)
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read().decode())
    assert f'webagent_rpcs_total{{code="RESOURCE_EXHAUSTED",method="/{ENV}/CreateSession"}}' in text
    assert f'webagent_rpc_seconds_count{{code="OK",method="/{ENV}/GetCapabilities"}}' in text
    assert "webagent_session_capacity" in text


async def test_the_advertised_address_takes_the_bound_port(serve):
    assert (await serve(advertise="env-0.env")).address.startswith("env-0.env:")
    assert (await serve(advertise="env-0.env:443")).address == "env-0.env:443"
    port = free_port()
    assert (await serve(port=port)).address == f"127.0.0.1:{port}"


class Remaining:
    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float | None:
        return self._seconds


@pytest.mark.parametrize(("remaining", "expected"), [(None, 30), (5.0, 5.0), (90.0, 30), (-1.0, 0.0)])
def test_time_left_is_bounded_by_deadline_and_cap(remaining, expected):
    assert time_left(Remaining(remaining), 30) == expected
