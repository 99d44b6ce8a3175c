"""The NATS of the umbrella, its users and the provisioning Job, run for real."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import charts
import pytest
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime.config import QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue
from webagent_runtime.testing import NatsServer, free_port, nats_server

USERS = charts.EXAMPLES / "nats-auth.conf"
RUN = "run"


def server_configuration(place: Path, *, auth: bool) -> Path:
    """What the umbrella renders, with this machine's paths and ports."""
    values: dict[str, Any] = {"global.imageRegistry": "registry.example"}
    if auth:
        values["nats.auth.existingSecret"] = "nats-auth"
        (place / "auth").mkdir()
        (place / "auth" / "auth.conf").write_text(USERS.read_text())
    text: str = charts.render("webagent", values=values).one("ConfigMap", "rel-nats")["data"]["nats.conf"]
    text = text.replace("0.0.0.0:8222", f"127.0.0.1:{free_port()}").replace("/var/run/nats", str(place))
    text = re.sub(r"^listen: .*$|^ *store_dir: .*$", "", text, flags=re.MULTILINE)
    file = place / "nats.conf"
    file.write_text(text)
    return file


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    monkeypatch.setenv("POD_NAME", "rel-nats-0")
    auth = getattr(request, "param", False)
    with nats_server("--config", str(server_configuration(tmp_path, auth=auth))) as running:
        yield running


def provision(url: str) -> str:
    """Runs the Job's own command as its container would."""
    (container,) = [each for obj in charts.case("rollout/default-values").all("Job") for each in charts.containers(obj)]
    variables = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    here = {"WEBAGENT_PROVISION__QUEUE__URL": url, "WEBAGENT_PROVISION__WAIT_SECONDS": "20"}
    environment = {**os.environ, **variables, **here}
    python, *arguments = container["command"]
    assert python == "python"
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def test_the_provisioning_job_makes_the_queue_and_may_run_again(server: NatsServer) -> None:
    for _ in range(2):
        assert "queue_provisioned" in await asyncio.to_thread(provision, server.url)
    queue = await Queue.connect(QueueConfig(url=server.url), name="test")
    request = trajectory_pb2.RolloutRequest(run_id=RUN, episode={"episode_id": "1"})
    await queue.publish_request(request)
    delivery = await queue.requests().next(timeout=20)
    assert delivery is not None
    assert delivery.message == request
    await queue.close()


def url_of(server: NatsServer, user: str) -> str:
    return f"nats://{user}:replace-{user}@127.0.0.1:{server.port}"


async def connected(server: NatsServer, user: str) -> Queue:
    config = QueueConfig(url=url_of(server, user), publish_timeout=3, request_timeout=2)
    return await Queue.connect(config, name=user)


@pytest.mark.parametrize("server", [True], indirect=True)
async def test_each_user_may_do_its_work_and_nothing_else(server: NatsServer) -> None:
    """One episode and one version on their way, each step by the user that owns it; what others do is refused."""
    await asyncio.to_thread(provision, url_of(server, "provision"))
    trainer, rollout, inference = [await connected(server, user) for user in ("trainer", "rollout", "inference")]
    for queue in (trainer, rollout, inference):
        await queue.ensure()
    await trainer.ensure_run(RUN)
    request = trajectory_pb2.RolloutRequest(run_id=RUN, episode={"episode_id": "1"})
    trajectory = trajectory_pb2.Trajectory(run_id=RUN, episode={"episode_id": "1"})
    version = policy_pb2.PolicyVersion(version=1, uri="file:///a", manifest_digest="b", run_id=RUN)

    await trainer.publish_request(request)
    taken = await rollout.requests().next(timeout=20)
    assert taken is not None
    await rollout.publish_trajectory(trajectory)
    await taken.ack()
    outcome = await trainer.trajectories(RUN).next(timeout=20)
    assert outcome is not None
    await outcome.ack()
    await trainer.publish_version(version)
    assert await anext(inference.watch_versions()) == version
    await inference.put_serving(policy_pb2.ServingStatus(replica="a", version=1))
    assert [status.replica for status in await trainer.serving()] == ["a"]

    refused = await asyncio.gather(
        inference.publish_version(policy_pb2.PolicyVersion(version=2)),
        rollout.publish_version(policy_pb2.PolicyVersion(version=2)),
        inference.publish_request(request),
        trainer.publish_trajectory(trajectory),
        return_exceptions=True,
    )
    assert [type(error) for error in refused] == [ServiceError] * 4
    assert [each.version for each in await trainer.versions()] == [1]
    await trainer.drop_run(RUN)
    for queue in (trainer, rollout, inference):
        await queue.close()


async def assert_refused(connecting: Awaitable[Queue]) -> None:
    with pytest.raises(ServiceError, match="cannot be reached"):
        await connecting


async def test_a_user_without_its_password_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "rel-nats-0")
    with nats_server("--config", str(server_configuration(tmp_path, auth=True))) as server:
        connecting = Queue.connect(QueueConfig(url=server.url, connect_timeout=3), name="nobody")
        await assert_refused(connecting)
