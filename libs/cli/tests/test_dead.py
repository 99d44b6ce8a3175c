"""Dead letters of a run: listed by what they were, and put back where they died."""

import asyncio
from pathlib import Path

import pytest
import yaml
from webagent.trajectory.v1.trajectory_pb2 import RolloutRequest
from webagent_cli.dead import dead_letters
from webagent_cli.runs import Run
from webagent_runtime.config import ConfigError, QueueConfig
from webagent_runtime.queue import Queue
from webagent_runtime.testing import nats_server


def request(run_id: str, name: str) -> RolloutRequest:
    made = RolloutRequest(run_id=run_id)
    made.episode.episode_id, made.episode.task.task_id, made.episode.seed = name, "click-button", 7
    return made


async def kill_requests(url: str) -> None:
    queue = await Queue.connect(QueueConfig(url=url), name="test")
    await queue.ensure()
    for run_id, name in (("mine", "mine-1"), ("other", "other-1")):
        await queue.publish_request(request(run_id, name))
    taken = queue.requests()
    for _ in range(2):
        delivery = await taken.next(10.0)
        assert delivery is not None
        await delivery.terminate("no worker can play it")
    await queue.close()


async def take(url: str) -> str:
    queue = await Queue.connect(QueueConfig(url=url), name="test")
    delivery = await queue.requests().next(10.0)
    assert delivery is not None
    await delivery.ack()
    await queue.close()
    return delivery.message.episode.episode_id


def test_a_runs_dead_letters_are_listed_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "mine")
    run.service_config("trainer").parent.mkdir(parents=True)
    run.config.write_text("{}")
    with nats_server() as nats:
        run.service_config("trainer").write_text(yaml.safe_dump({"queue": {"url": nats.url}}))
        asyncio.run(kill_requests(nats.url))
        dead_letters("mine", runs=tmp_path, url=None, replay=False)
        listed = capsys.readouterr().out
        assert "mine-1" in listed
        assert "click-button/7" in listed
        assert "other-1" not in listed
        dead_letters("mine", runs=tmp_path, url=None, replay=True)
        assert asyncio.run(take(nats.url)) == "mine-1"
        dead_letters("mine", runs=tmp_path, url=None, replay=False)
        assert "no dead letters" in capsys.readouterr().out


def test_a_run_that_names_no_queue_asks_for_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text("{}")
    with pytest.raises(ConfigError, match="--queue"):
        dead_letters("mine", runs=tmp_path, url=None, replay=False)
