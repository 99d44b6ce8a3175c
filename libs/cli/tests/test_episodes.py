"""Many episodes at once: kept as they end, repeated when INVALID, not played again after an interruption."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from webagent.evaluator.v1 import evaluator_pb2
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.episodes import Attempts, Job, Player, Trajectory, final_outcomes, jobs
from webagent_cli.evaluation import evaluation_jobs, unsettled
from webagent_cli.journal import mend, read_episodes
from webagent_runtime.client import open_channel

ROOT = Path(__file__).resolve().parents[3]


class FlakyRollout(rollout_pb2_grpc.RolloutServiceServicer):
    """Speaks the contract; each episode is INVALID `faults` times before it is SCORED."""

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.played: Counter[tuple[str, int]] = Counter()
        self.at_once = 0
        self.most_at_once = 0

    async def RunEpisode(
        self, request: rollout_pb2.RunEpisodeRequest, context: Any
    ) -> AsyncIterator[rollout_pb2.RunEpisodeResponse]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        key = (request.episode.task.task_id, request.episode.seed)
        self.played[key] += 1
        await asyncio.sleep(0)
        trajectory = Trajectory(episode=request.episode, status=trajectory_pb2.EPISODE_STATUS_SCORED)
        trajectory.verdict.outcome = evaluator_pb2.OUTCOME_SUCCESS
        if self.played[key] <= self.faults:
            trajectory.status = trajectory_pb2.EPISODE_STATUS_INVALID
            trajectory.verdict.outcome = evaluator_pb2.OUTCOME_INVALID
        self.at_once -= 1
        yield rollout_pb2.RunEpisodeResponse(finished=rollout_pb2.EpisodeFinished(trajectory=trajectory))


@pytest.fixture
def config() -> LoopConfig:
    return load_loop(ROOT / "configs" / "quick.yaml", {"eval.concurrency": 3})


async def play(servicer: FlakyRollout, config: LoopConfig, path: Path, todo: list[Job]) -> list[Trajectory]:
    server = grpc.aio.server()
    rollout_pb2_grpc.add_RolloutServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    reported: list[Trajectory] = []
    try:
        player = Player("tested", "bc", config)
        stub: Any = rollout_pb2_grpc.RolloutServiceStub(channel)
        await Attempts(stub, player, path=path).play(todo, reported.append)
    finally:
        await channel.close()
        await server.stop(None)
    return reported


async def test_an_invalid_episode_is_played_again_and_both_are_kept(config: LoopConfig, tmp_path: Path) -> None:
    path = tmp_path / "episodes"
    reported = await play(FlakyRollout(faults=1), config, path, [Job("click-button", 7)])
    assert [one.status for one in reported] == [trajectory_pb2.EPISODE_STATUS_SCORED]
    kept = read_episodes(path)
    assert len(kept) == 2
    assert final_outcomes(kept)["click-button", 7].status == trajectory_pb2.EPISODE_STATUS_SCORED


async def test_attempts_are_bounded(config: LoopConfig, tmp_path: Path) -> None:
    servicer = FlakyRollout(faults=100)
    reported = await play(servicer, config, tmp_path / "episodes", [Job("click-button", 7)])
    assert servicer.played["click-button", 7] == config.eval.attempts
    assert reported[0].status == trajectory_pb2.EPISODE_STATUS_INVALID


async def test_no_more_episodes_run_at_once_than_configured(config: LoopConfig, tmp_path: Path) -> None:
    servicer = FlakyRollout(faults=0)
    todo = jobs(["click-button", "click-link"], range(10))
    assert len(await play(servicer, config, tmp_path / "episodes", todo)) == 20
    assert servicer.most_at_once <= 3


async def test_every_attempt_has_an_id_of_its_own(config: LoopConfig, tmp_path: Path) -> None:
    path = tmp_path / "episodes"
    await play(FlakyRollout(faults=2), config, path, [Job("click-button", 1), Job("click-button", 2)])
    ids = [one.episode.episode_id for one in read_episodes(path)]
    assert len(set(ids)) == len(ids) == 6


async def test_a_file_cut_short_by_a_kill_is_mended(config: LoopConfig, tmp_path: Path) -> None:
    path = tmp_path / "episodes"
    await play(FlakyRollout(faults=0), config, path, [Job("click-button", 1), Job("click-button", 2)])
    path.write_bytes(path.read_bytes()[:-3])
    assert len(read_episodes(path)) == 1
    mend(path)
    await play(FlakyRollout(faults=0), config, path, [Job("click-button", 2)])
    assert len(read_episodes(path)) == 2


def test_all_phases_play_the_same_pages(config: LoopConfig) -> None:
    held_out = {(job.task, job.seed) for job in evaluation_jobs(config, "bc")}
    assert held_out == {(job.task, job.seed) for job in evaluation_jobs(config, "rl")}
    few = {(job.task, job.seed) for job in evaluation_jobs(config, "zero_shot")}
    assert few < held_out
    assert len(few) == len(config.tasks.ids) * config.eval.zero_shot_seeds


def test_tasks_take_turns() -> None:
    assert [(job.task, job.seed) for job in jobs(["a", "b"], [1, 2])] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_the_same_specification_serves_every_attempt_but_for_its_id(config: LoopConfig) -> None:
    player = Player("tested", "bc", config, min_version=3)
    first, second = player.spec(Job("click-button", 1)), player.spec(Job("click-button", 1))
    assert first.episode_id != second.episode_id
    second.episode_id = first.episode_id
    assert first == second
    assert first.sampled.sampling.temperature == 1.0
    assert first.sampled.min_weights_version == 3
    assert list(first.agent.omit_attributes) == list(config.agent.omit_attributes)


async def test_what_was_played_under_other_settings_is_played_again(config: LoopConfig, tmp_path: Path) -> None:
    path = tmp_path / "episodes"
    todo = [Job("click-button", 1), Job("click-button", 2, screenshots=True)]
    await play(FlakyRollout(faults=0), config, path, todo)
    assert unsettled(Player("tested", "bc", config), todo, path) == []
    other = load_loop(ROOT / "configs" / "quick.yaml", {"agent.max_turns": 99})
    assert unsettled(Player("tested", "bc", other), todo, path) == todo
