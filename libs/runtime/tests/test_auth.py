"""Who may call what: bearer tokens with scopes, and certificates in both directions."""

import shutil

import grpc
import pytest
from certificates import Authority
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig, ClientTlsConfig, ConfigError, TlsConfig, validate
from webagent_runtime.errors import from_rpc

OK = grpc.StatusCode.OK
TOKENS = "agent-token: [env]\nadmin-token: [env, rollout]\nother-token: []\n"


async def call_env(channel) -> tuple[grpc.StatusCode, str]:
    stub = env_pb2_grpc.EnvironmentServiceStub(channel)
    try:
        await stub.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code(), from_rpc(error).reason
    return OK, ""


async def call_rollout(channel) -> tuple[grpc.StatusCode, str]:
    stub = rollout_pb2_grpc.RolloutServiceStub(channel)
    try:
        await stub.RunEpisode(rollout_pb2.RunEpisodeRequest(), timeout=10).read()
    except grpc.aio.AioRpcError as error:
        return error.code(), from_rpc(error).reason
    return OK, ""


@pytest.fixture
async def guarded(serve, tmp_path):
    path = tmp_path / "tokens.yaml"
    path.write_text(TOKENS)
    return await serve(tokens_file=path)


@pytest.fixture
def client_with(tmp_path):
    def config(token: str | None) -> ClientConfig:
        if token is None:
            return ClientConfig()
        path = tmp_path / "token"
        path.write_text(f"{token}\n")
        return ClientConfig(token_file=path)

    return config


@pytest.mark.parametrize(
    ("token", "at_env", "at_rollout"),
    [
        (None, "TOKEN_REQUIRED", "TOKEN_REQUIRED"),
        ("wrong-token", "TOKEN_UNKNOWN", "TOKEN_UNKNOWN"),
        ("agent-token", "", "SCOPE_MISSING"),
        ("admin-token", "", ""),
        ("other-token", "SCOPE_MISSING", "SCOPE_MISSING"),
    ],
)
async def test_each_service_asks_for_its_own_scope(guarded, client_with, token, at_env, at_rollout):
    codes = {
        "": OK,
        "TOKEN_REQUIRED": grpc.StatusCode.UNAUTHENTICATED,
        "TOKEN_UNKNOWN": grpc.StatusCode.UNAUTHENTICATED,
        "SCOPE_MISSING": grpc.StatusCode.PERMISSION_DENIED,
    }
    async with open_channel(guarded.address, client_with(token)) as channel:
        assert await call_env(channel) == (codes[at_env], at_env)
        assert await call_rollout(channel) == (codes[at_rollout], at_rollout)


async def test_renewed_tokens_are_used_without_a_restart_by_both_sides(guarded, client_with, tmp_path):
    """A file that is broken for a moment changes nothing."""
    renewed = client_with("agent-token")
    unchanged = ClientConfig(token_file=shutil.copy(tmp_path / "token", tmp_path / "old"))
    async with (
        open_channel(guarded.address, renewed) as channel,
        open_channel(guarded.address, unchanged) as old,
    ):
        assert (await call_env(channel), await call_env(old)) == ((OK, ""), (OK, ""))
        for content in ("renewed-token: [", "renewed-token: [env]\n"):
            (tmp_path / "token").write_bytes(b"\xff" if content.endswith("[") else b"renewed-token")
            (tmp_path / "tokens.yaml").write_text(content)
            assert await call_env(channel) == (OK, "")
        assert await call_env(old) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN")


async def test_health_needs_no_token_and_reflection_any(guarded, client_with):
    async with open_channel(guarded.address) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError, match="bearer token"):
            await reflect(channel)
    async with open_channel(guarded.address, client_with("other-token")) as channel:
        assert (await reflect(channel)).list_services_response.service


async def reflect(channel):
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return await stub.ServerReflectionInfo(iter([request]), timeout=5).read()


@pytest.mark.parametrize("text", ["[a]", "token: env\n", "token: [1]\n", "token: [", ""])
async def test_a_tokens_file_of_another_form_is_refused(serve, tmp_path, text):
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"tokens.yaml"):
        await serve(tokens_file=path)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "authority")


@pytest.fixture
async def secured(serve, authority):
    cert_file, key_file = authority.issue("server")
    tls = TlsConfig(cert_file=cert_file, key_file=key_file, client_ca_file=authority.ca_file)
    return await serve(tls=tls, health_port=0)


async def test_a_client_with_a_certificate_of_the_authority_is_served(secured, authority):
    cert_file, key_file = authority.issue("client")
    tls = ClientTlsConfig(ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file)
    async with open_channel(secured.address, ClientConfig(tls=tls)) as channel:
        assert await call_env(channel) == (OK, "")


async def test_renewed_certificates_are_used_without_a_restart(secured, authority, tmp_path):
    cert_file, key_file = authority.issue("client")
    tls = ClientTlsConfig(ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file)
    old = ClientTlsConfig(**{name: shutil.copy(path, tmp_path / f"old-{name}") for name, path in tls if path})
    async with open_channel(secured.address, ClientConfig(tls=tls)) as channel:
        assert await call_env(channel) == (OK, "")
        renewed = Authority(tmp_path, "authority")
        renewed.issue("server")
        renewed.issue("client")
        assert await call_env(channel) == (OK, "")
    async with open_channel(secured.address, ClientConfig(tls=old)) as channel:
        assert (await call_env(channel))[0] is grpc.StatusCode.UNAVAILABLE


async def test_the_name_to_expect_can_be_set(secured, authority):
    cert_file, key_file = authority.issue("client")
    for name, expected in (("env.test", OK), ("other.test", grpc.StatusCode.UNAVAILABLE)):
        tls = ClientTlsConfig(ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file, server_name=name)
        async with open_channel(secured.address, ClientConfig(tls=tls)) as channel:
            assert (await call_env(channel))[0] is expected


async def test_clients_without_a_fitting_certificate_get_nowhere(secured, authority, tmp_path):
    cert_file, key_file = Authority(tmp_path, "stranger").issue("intruder")
    configs = [
        ClientConfig(),
        ClientConfig(tls=ClientTlsConfig(ca_file=authority.ca_file)),
        ClientConfig(tls=ClientTlsConfig(ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file)),
    ]
    for config in configs:
        async with open_channel(secured.address, config) as channel:
            assert (await call_env(channel))[0] is not OK


async def test_a_server_of_another_authority_is_not_trusted(secured, tmp_path):
    tls = ClientTlsConfig(ca_file=Authority(tmp_path, "stranger").ca_file)
    async with open_channel(secured.address, ClientConfig(tls=tls)) as channel:
        assert (await call_env(channel))[0] is grpc.StatusCode.UNAVAILABLE


async def test_with_tls_on_health_is_still_answered_in_plaintext(secured):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{secured.health_port}") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_missing_certificate_is_one_clear_line(serve, tmp_path):
    with pytest.raises(ConfigError, match=r"tls.key_file .*No such file"):
        await serve(tls=TlsConfig(cert_file=tmp_path / "c", key_file=tmp_path / "k"))


def test_a_certificate_without_its_key_is_refused():
    with pytest.raises(ConfigError, match="cert_file and key_file must be set together"):
        validate(ClientTlsConfig, {"cert_file": "a"}, source="here")
