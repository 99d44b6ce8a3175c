"""New tasks of failed ones: never a known one, on pages that were played, the same each time without an endpoint."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.trajectory.v1.trajectory_pb2 import EPISODE_STATUS_INVALID, EPISODE_STATUS_SCORED, PayloadRef, Trajectory
from webagent_rollout.endpoint import model_at
from webagent_rollout.ideas import Asked, Template, Tried, fresh
from webagent_rollout.new_tasks import suite_of, tried
from webagent_rollout.testing import endpoint, env_process
from webagent_runtime import delimited
from webagent_runtime.client import open_channel

PAGE = '<p>shop</p><button id="0">Mugs</button><button id="1">Cups &amp; more</button><a id="2">Help</a>'
MUG = Tried("7", 'Open "Mugs" and list the 3 cheapest, sent by Ann Lee', "http://shop.test/", PAGE)
TEA = Tried("8", 'Open "Tea" and list the 12 cheapest, sent by Bo', "http://shop.test/tea", "")


class Nowhere:
    async def get(self, ref: PayloadRef) -> bytes:
        raise AssertionError(ref)


def episode(task: str, instruction: str, reward: float | None) -> Trajectory:
    made = Trajectory(instruction=instruction, status=EPISODE_STATUS_INVALID)
    if reward is not None:
        made.status, made.reward = EPISODE_STATUS_SCORED, reward
    made.episode.task.task_id = task
    made.turns.add(url="http://shop.test/", observation_text=PAGE)
    return made


async def test_the_template_changes_one_slot_to_what_is_known_to_fit_it() -> None:
    ideas = await Template().invent([MUG], [MUG, TEA], 50)
    assert sorted(idea.instruction for idea in ideas) == [
        'Open "Cups & more" and list the 3 cheapest, sent by Ann Lee',
        'Open "Mugs" and list the 12 cheapest, sent by Ann Lee',
        'Open "Mugs" and list the 3 cheapest, sent by Bo',
        'Open "Tea" and list the 3 cheapest, sent by Ann Lee',
    ]
    assert {idea.like for idea in ideas} == {MUG}


async def test_failed_tasks_take_turns_and_the_ideas_are_the_same_each_time() -> None:
    first, again = [await Template().invent([MUG, TEA], [MUG, TEA], 2) for _ in range(2)]
    assert first == again
    assert [idea.like.task_id for idea in first] == ["7", "8"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_an_idea_is_never_a_task_that_was_played(instructions: list[str]) -> None:
    known = [Tried(str(number), text, "http://a.test/", PAGE) for number, text in enumerate(instructions)]
    ideas = asyncio.run(Template().invent(known, known, 20))
    assert fresh(ideas, known) == ideas


async def test_tasks_are_rated_by_their_scored_episodes_alone() -> None:
    episodes = [episode("7", "a", 1.0), episode("7", "a", 0.0), episode("8", "b", None), episode("9", "c", 0.0)]
    found = [(one.task_id, rate, one.page) async for one, rate in tried(episodes, Nowhere())]
    assert found == [("7", 0.5, PAGE), ("9", 0.0, PAGE)]


async def test_an_endpoint_has_its_ideas_checked_one_by_one() -> None:
    said = 'Here you are.\n1: Open "Help"\n2) Buy tea\n9: No such page\n1: open “help”!\n1. Fly to the moon'
    with endpoint(*map(reply, (said, "YES", "no", "NO"))) as (url, asked):
        ideas = await Asked(model_at(url, "inventor")).invent([MUG, TEA], [MUG, TEA], 10)
    assert [(idea.instruction, idea.like) for idea in ideas] == [('Open "Help"', MUG)]
    prompts = [one["messages"][0]["content"] for one in asked]
    assert '2. Open "Tea"' in prompts[0]
    assert [one["temperature"] for one in asked] == [1.0, 0.0, 0.0, 0.0]
    assert PAGE in prompts[1]


def reply(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


async def test_a_new_task_begins_where_the_one_it_is_like_does() -> None:
    (idea,) = await Template().invent([TEA], [MUG, TEA], 1)
    like = {
        "suite": "old",
        "sites": {"shop": {"url": "http://shop.test"}},
        "tasks": [{"id": 8, "instruction": "?", "site": "shop", "start_url": ["/tea", "/"], "success": "true"}],
    }
    suite = suite_of("new", [idea], like)
    assert suite["sites"] == like["sites"]
    (task,) = suite["tasks"]
    assert task.pop("id").startswith("8-")
    assert task == {"instruction": idea.instruction, "site": "shop", "start_url": ["/tea", "/"]}
    assert suite_of("new", [idea], {})["tasks"][0]["start_url"] == TEA.url


@pytest.mark.slow
async def test_env_serves_the_suite_that_the_command_writes(tmp_path: Path) -> None:
    source, target = tmp_path / "archive.trajectories", tmp_path / "new.yaml"
    for task in (MUG, TEA):
        delimited.append(source, episode(task.task_id, task.instruction, 0.0))
    command = [sys.executable, "-m", "webagent_rollout.new_tasks", str(source), str(target), "--suite", "new"]
    said = (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)).stdout
    assert said.startswith("2 tasks played, 2 of them failed; ")
    process = env_process(tmp_path / "state", f"suites.files=['{target}']", "suites.miniwob=false")
    process.start()
    try:
        async with open_channel(process.address) as channel:
            stub = env_pb2_grpc.EnvironmentServiceStub(channel)
            listed = await stub.ListTasks(env_pb2.ListTasksRequest(suite="new"), timeout=10)
    finally:
        process.stop()
    ids = [task["id"] for task in yaml.safe_load(target.read_text())["tasks"]]
    assert [info.task.task_id for info in listed.tasks] == ids
