"""Many episodes at once: kept as they end, repeated when INVALID, not played again after an interruption."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from webagent.evaluator.v1 import evaluator_pb2
from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from webagent.trajectory.v1 import trajectory_pb2
from webagent_cli.clients import Clients
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.episodes import Attempts, Job, Player, Trajectory, final_outcomes, jobs
from webagent_cli.errors import RunError
from webagent_cli.evaluation import evaluate, evaluation_jobs, player_of, refuse_other_settings, unsettled
from webagent_cli.journal import mend, read_episodes
from webagent_cli.progress import Display
from webagent_cli.record import PhaseRecord, RunRecord
from webagent_cli.runs import Run
from webagent_runtime import delimited
from webagent_runtime.client import open_channel
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError
from webagent_runtime.interceptors import abort

ROOT = Path(__file__).resolve().parents[3]


class FlakyRollout(rollout_pb2_grpc.RolloutServiceServicer):
    """Speaks the contract; each episode is INVALID `faults` times before it is SCORED."""

    def __init__(self, faults: int, version: int = 0) -> None:
        self.faults = faults
        self.version = version
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
        trajectory.turns.add().spans.add(start=0, end=1, weights_version=self.version)
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


async def test_a_reply_of_another_policy_version_ends_the_phase_and_is_not_kept(
    config: LoopConfig, tmp_path: Path
) -> None:
    path = tmp_path / "episodes"
    with pytest.raises(RunError, match="version 0, but version 5 replied"):
        await play(FlakyRollout(faults=0, version=5), config, path, [Job("click-button", 1)])
    assert read_episodes(path) == []


class RefusingRollout(FlakyRollout):
    """Plays nothing, as one that no expert's script is known to."""

    async def RunEpisode(
        self, request: rollout_pb2.RunEpisodeRequest, context: Any
    ) -> AsyncIterator[rollout_pb2.RunEpisodeResponse]:
        refusal = ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "NO_EXPERT", "no scripted expert plays it")
        await abort(context, refusal)
        yield rollout_pb2.RunEpisodeResponse()


async def test_what_rollout_refuses_is_one_error_for_people(config: LoopConfig, tmp_path: Path) -> None:
    todo = jobs(["click-color"], range(9))
    with pytest.raises(ConfigError, match="NO_EXPERT: no scripted expert plays it"):
        await play(RefusingRollout(faults=0), config, tmp_path / "episodes", todo)


def evaluated(run: Run, config: LoopConfig, phase: str) -> RunRecord:
    """The record of a run whose phase is done, all of its episodes INVALID."""
    record = RunRecord(phases={f"eval_{phase}": PhaseRecord(done=True)}, versions={"bc": 3})
    player = player_of(run, config, record, phase)
    for job in evaluation_jobs(config, phase):
        delimited.append(run.episodes(phase), Trajectory(episode=player.spec(job)))
    return record


@pytest.mark.parametrize("phase", ["zero_shot", "bc"])
async def test_an_evaluation_that_is_done_is_not_played_on(phase: str, config: LoopConfig, tmp_path: Path) -> None:
    run, nobody = Run(tmp_path), cast("Clients", None)
    record = evaluated(run, config, phase)
    before = run.episodes(phase).read_bytes()
    await evaluate(nobody, run, config, record, phase, Display())
    assert run.episodes(phase).read_bytes() == before


@pytest.mark.parametrize(
    "change", [{"eval.seeds.count": 500}, {"eval.temperature": 0.5}, {"agent.max_turns": 99}], ids=str
)
def test_what_a_finished_evaluation_was_played_with_cannot_be_changed(
    change: dict[str, float], config: LoopConfig, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    record = evaluated(run, config, "bc")
    refuse_other_settings(run, config, record)
    with pytest.raises(ConfigError, match=r"eval_bc of run .* is done"):
        refuse_other_settings(run, load_loop(ROOT / "configs" / "quick.yaml", change), record)
