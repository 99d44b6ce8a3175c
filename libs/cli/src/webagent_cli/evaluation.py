"""Evaluation and demonstrations: which episodes, and what came of them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.config import ConfigError

from webagent_cli.clients import CALL_SECONDS, Clients
from webagent_cli.config import LoopConfig
from webagent_cli.episodes import DEMOS, Attempts, Job, Player, Trajectory, final_outcomes, jobs, succeeded
from webagent_cli.errors import RunError
from webagent_cli.journal import mend, read_episodes
from webagent_cli.progress import Display
from webagent_cli.record import RunRecord
from webagent_cli.runs import Run

SCREENSHOT_SEEDS = 3


async def play_phase(
    clients: Clients, player: Player, todo: list[Job], path: Path, display: Display, *, only_successes: bool = False
) -> dict[tuple[str, int], Trajectory]:
    """Plays what the file does not hold yet; returns the outcome of each task and seed."""
    mend(path)
    before = _played(player, todo, path)
    remaining = unsettled(player, todo, path)
    outcomes = list(before.values())
    keep = succeeded if only_successes else lambda _: True
    begun, played = time.monotonic(), 0
    name = player.phase if player.phase == DEMOS else f"eval_{player.phase}"
    with display.phase(name, len(todo), done=len(todo) - len(remaining)) as view:

        def report(trajectory: Trajectory) -> None:
            nonlocal played
            played += 1
            outcomes.append(trajectory)
            scored = [one for one in outcomes if one.status == trajectory_pb2.EPISODE_STATUS_SCORED]
            successes = sum(succeeded(one) for one in scored)
            rate = f"{100 * successes / len(scored):.0f} %" if scored else "-"
            view.advance({"success": rate, "episodes/s": f"{played / (time.monotonic() - begun):.1f}"})

        await Attempts(clients.rollout, player, path=path, keep=keep).play(remaining, report)
    return final_outcomes(outcomes)


def unsettled(player: Player, todo: list[Job], path: Path) -> list[Job]:
    """What the file does not hold a SCORED episode of yet."""
    before = _played(player, todo, path)
    scored = trajectory_pb2.EPISODE_STATUS_SCORED
    return [job for job in todo if (job.task, job.seed) not in before or before[job.task, job.seed].status != scored]


def _played(player: Player, todo: list[Job], path: Path) -> dict[tuple[str, int], Trajectory]:
    """What counts of a file's episodes: those of the jobs that were played under the player's settings."""
    kept = final_outcomes(episode for episode in read_episodes(path) if player.played(episode))
    return {key: kept[key] for key in ((job.task, job.seed) for job in todo) if key in kept}


def evaluation_jobs(config: LoopConfig, phase: str) -> list[Job]:
    """The held-out episodes of a phase: the untrained model plays the first few seeds of each task."""
    seeds = config.eval.seeds.seeds()
    if phase == "zero_shot":
        return jobs(config.tasks.ids, seeds[: config.eval.zero_shot_seeds], screenshots=1)
    return jobs(config.tasks.ids, seeds, screenshots=SCREENSHOT_SEEDS)


def player_of(run: Run, config: LoopConfig, record: RunRecord, phase: str) -> Player:
    """The policy version that a phase of the loop evaluates, and how it draws."""
    version = 0 if phase == "zero_shot" else record.versions[phase.removesuffix("_greedy")]
    temperature = 0.0 if phase.endswith("_greedy") else config.eval.temperature
    return Player(run.id, phase, config, temperature=temperature, min_version=version)


async def evaluate(
    clients: Clients, run: Run, config: LoopConfig, record: RunRecord, phase: str, display: Display
) -> None:
    """One evaluation phase over the held-out seeds; a phase that is done stays as it is, INVALID episodes too."""
    if record.phase(f"eval_{phase}").done:
        return
    player = player_of(run, config, record, phase)
    await play_phase(clients, player, evaluation_jobs(config, phase), run.episodes(phase), display)


def refuse_other_settings(run: Run, config: LoopConfig, record: RunRecord) -> None:
    """Fails if an evaluation that is done was not played as the configuration says: its policy is gone."""
    for name, entry in record.phases.items():
        phase = name.removeprefix("eval_")
        if phase == name or not entry.done:
            continue
        todo = evaluation_jobs(config, phase)
        if len(_played(player_of(run, config, record, phase), todo, run.episodes(phase))) < len(todo):
            raise ConfigError(
                f"eval_{phase} of run {run.id} is done, with other tasks, seeds or settings of agent or eval: "
                "leave them as they were, or begin a new run"
            )


def _expert(run: Run, config: LoopConfig) -> tuple[Player, list[Job]]:
    return Player(run.id, DEMOS, config, policy="expert"), jobs(config.tasks.ids, config.demos.seeds.seeds())


def undemonstrated(run: Run, config: LoopConfig) -> set[str]:
    """The tasks that experts have yet to play for a run."""
    return {job.task for job in unsettled(*_expert(run, config), run.demos)}


async def demonstrate(clients: Clients, run: Run, config: LoopConfig, display: Display) -> list[Trajectory]:
    """Has the scripted experts play the demonstration seeds; only successes are kept."""
    player, todo = _expert(run, config)
    outcomes = await play_phase(clients, player, todo, run.demos, display, only_successes=True)
    lacking = [
        task for task in config.tasks.ids if not any(succeeded(o) for (t, _), o in outcomes.items() if t == task)
    ]
    if lacking:
        why = next(outcome for (task, _), outcome in outcomes.items() if task == lacking[0])
        raise RunError(
            f"no demonstration of {', '.join(lacking)} succeeded; the last of {lacking[0]}: "
            f"{why.reason or 'judged a failure'} {why.detail}".rstrip()
        )
    return [outcome for outcome in outcomes.values() if succeeded(outcome)]


def sites_of(trajectories: Iterable[Trajectory]) -> dict[str, str]:
    """The site of each task, as far as verdicts tell it."""
    return {one.episode.task.task_id: one.verdict.rule.site for one in trajectories if one.verdict.rule.site}


def results(trajectories: Iterable[Trajectory], sites: Mapping[str, str]) -> list[evaluator_pb2.EpisodeResult]:
    """Judged episodes as the evaluator counts them."""
    return [
        evaluator_pb2.EpisodeResult(
            task=env_pb2.TaskRef(suite=one.episode.task.suite, task_id=one.episode.task.task_id),
            seed=one.episode.seed,
            site=sites.get(one.episode.task.task_id, ""),
            outcome=one.verdict.outcome
            if one.status == trajectory_pb2.EPISODE_STATUS_SCORED
            else evaluator_pb2.OUTCOME_INVALID,
        )
        for one in trajectories
    ]


async def summarize(
    clients: Clients,
    trajectories: Sequence[Trajectory],
    baseline: Sequence[Trajectory] = (),
    *,
    sites: Mapping[str, str] | None = None,
) -> evaluator_pb2.SummarizeResponse:
    """Rates with intervals, and the paired difference to a baseline if one is given; `sites`: those of the tasks."""
    sites = sites_of([*trajectories, *baseline]) if sites is None else sites
    request = evaluator_pb2.SummarizeRequest(results=results(trajectories, sites), baseline=results(baseline, sites))
    return await clients.evaluator.Summarize(request, timeout=CALL_SECONDS)
