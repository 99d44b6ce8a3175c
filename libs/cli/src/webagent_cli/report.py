"""report.html: one self-contained page about a run, for people."""

import base64
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from rich.console import Console
from webagent.env.v1 import env_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.config import ConfigError

from webagent_cli import charts
from webagent_cli.charts import Series
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.curves import further_curves
from webagent_cli.episodes import Trajectory, succeeded
from webagent_cli.payloads import local_payload
from webagent_cli.progress import duration
from webagent_cli.result import PHASES, Result, outcomes_of
from webagent_cli.runs import Run, find_run
from webagent_cli.studies import read_studies, write_studies

EPISODES = 12
FAILURES = 4
PHASE_TITLES = {"zero_shot": "Zero-shot", "bc": "Behaviour cloning", "rl": "M-GRPO", "rl_greedy": "M-GRPO, greedy"}
PHASE_COLOURS = {"zero_shot": "--zero", "bc": "--bc", "rl": "--rl", "rl_greedy": "--rl"}
STATUS_WORDS = {
    env_pb2.ACTION_STATUS_OK: "ok",
    env_pb2.ACTION_STATUS_FAILED: "failed",
    env_pb2.ACTION_STATUS_REJECTED: "rejected",
}


@dataclass(frozen=True)
class TurnView:
    """One turn as the page shows it."""

    index: int
    picture: str
    page: str
    reply: str
    status: str
    message: str


@dataclass(frozen=True)
class EpisodeView:
    """One episode as the page shows it; `before` is the verdict of cloning on the same page, if it played it."""

    task: str
    seed: int
    success: bool
    before: str
    instruction: str
    end: str
    turns: list[TurnView]


def _words(enum_name: str, prefix: str) -> str:
    return enum_name.removeprefix(prefix).lower().replace("_", " ")


def _turn(run: Run, index: int, turn: trajectory_pb2.Turn) -> TurnView:
    picture = local_payload(run, turn.screenshot_ref)
    page = turn.observation_text
    if not page and (stored := local_payload(run, turn.observation_ref)):
        page = stored.decode(errors="replace")
    return TurnView(
        index=index,
        picture=f"data:image/png;base64,{base64.b64encode(picture).decode()}" if picture else "",
        page=page,
        reply=turn.reply_text.strip() or "(nothing)",
        status=STATUS_WORDS.get(turn.result.status, ""),
        message=turn.result.message,
    )


def _episode(run: Run, trajectory: Trajectory, before: Trajectory | None) -> EpisodeView:
    known = "" if before is None else ("success" if succeeded(before) else "failure")
    return EpisodeView(
        task=trajectory.episode.task.task_id,
        seed=trajectory.episode.seed,
        success=succeeded(trajectory),
        before=known,
        instruction=trajectory.instruction,
        end=_words(trajectory_pb2.EndReason.Name(trajectory.end_reason), "END_REASON_"),
        turns=[_turn(run, index, turn) for index, turn in enumerate(trajectory.turns)],
    )


def choose_episodes(later: list[Trajectory], earlier: dict[tuple[str, int], Trajectory]) -> list[Trajectory]:
    """A dozen with screenshots: task by task, what the last phase learned first, and some failures."""
    shown = [one for one in later if any(turn.screenshot_ref.uri for turn in one.turns)]

    def learned(one: Trajectory) -> bool:
        before = earlier.get((one.episode.task.task_id, one.episode.seed))
        return before is not None and not succeeded(before)

    successes = [one for one in shown if succeeded(one)]
    successes.sort(key=lambda one: (not learned(one), -len(one.turns)))
    failures = sorted((one for one in shown if not succeeded(one)), key=lambda one: len(one.turns))
    few = _spread(failures, FAILURES)
    return _spread(successes, EPISODES - len(few)) + few


def _spread(episodes: list[Trajectory], count: int) -> list[Trajectory]:
    """The first `count`, tasks in turn."""
    rounds: dict[str, int] = {}
    ranked = []
    for position, episode in enumerate(episodes):
        turn = rounds[episode.episode.task.task_id] = rounds.get(episode.episode.task.task_id, -1) + 1
        ranked.append((turn, position, episode))
    return [episode for _, _, episode in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def _curves(result: Result) -> list[tuple[str, str, Markup]]:
    """Title, caption and picture of each curve that the run has numbers for."""
    rl = [one for one in result.iterations if one.phase == "rl"]
    bc = [one for one in result.iterations if one.phase == "bc"]
    found: list[tuple[str, str, Markup]] = []
    rows = [
        (PHASE_TITLES[phase], rate.rate, rate.low, rate.high, PHASE_COLOURS[phase])
        for phase, rate in result.overall.items()
        if rate.rate is not None and rate.low is not None and rate.high is not None
    ]
    if rows:
        picture = charts.interval_chart(rows, label="Held-out success by phase")
        found.append(("Held-out success", "All tasks, the same pages in every phase, with 95 % intervals.", picture))
    rewards = [(one.iteration, one.metrics["reward_mean"]) for one in rl if "reward_mean" in one.metrics]
    if rewards:
        lines = [Series("reward", rewards, "--rl")]
        picture = charts.line_chart(lines, label="Mean reward by iteration", percent=True)
        found.append(("Reward while training", "Share of each iteration's episodes that succeeded.", picture))
    ratios = [(one.iteration, one.metrics["ratio_mean"]) for one in rl if "ratio_mean" in one.metrics]
    if ratios:
        lines = [Series("ratio", ratios)]
        picture = charts.line_chart(lines, label="Importance ratio by iteration", band=(0.98, 1.02))
        caption = "Trainer over sampler at equal weights: inside the band, both compute the same policy."
        found.append(("Importance ratio", caption, picture))
    found += further_curves(rl)
    losses = [(one.iteration, one.metrics["loss"]) for one in bc if "loss" in one.metrics]
    if losses:
        measured = [(one.iteration, one.metrics["held_out_loss"]) for one in bc if "held_out_loss" in one.metrics]
        lines = [Series("loss", losses, "--bc")]
        if measured:
            lines.append(Series("of demonstrations held back", measured))
        picture = charts.line_chart(lines, label="Cloning loss", x_label="step")
        found.append(("Loss while cloning", "Mean cross-entropy of demonstrated replies.", picture))
    return found


def write_report(run: Run) -> Path:
    """Renders the page from result.json and the run's episodes."""
    result = Result.model_validate_json(run.result.read_text())
    config = load_loop(run.config)
    present = [phase for phase in PHASES if phase in result.overall]
    last = "rl" if "rl" in present else present[-1]
    earlier = {(one.episode.task.task_id, one.episode.seed): one for one in outcomes_of(run, config, "bc")}
    chosen = choose_episodes(outcomes_of(run, config, last), earlier)
    environment = Environment(loader=PackageLoader("webagent_cli"), autoescape=select_autoescape(["html", "j2"]))
    page = environment.get_template("report.html.j2").render(
        result=result,
        studies=read_studies(run),
        config=config,
        config_yaml=config.to_yaml(),
        phases=present,
        titles=PHASE_TITLES,
        colours=PHASE_COLOURS,
        curves=_curves(result),
        episodes=[_episode(run, one, earlier.get((one.episode.task.task_id, one.episode.seed))) for one in chosen],
        times=_times(result),
        facts=_facts(result, config),
        duration=duration,
        finished=datetime.fromisoformat(result.finished_at).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    run.report.write_text(page)
    return run.report


def _times(result: Result) -> list[tuple[str, float, str]]:
    """Name, share and text of each phase's wall time."""
    total = sum(result.wall_seconds.values()) or 1.0
    names = {"start": "start", "demos": "demonstrations", "bc": "cloning", "rl": "RL"}
    return [
        (names.get(name, name.replace("eval_", "evaluate ").replace("_", "-")), seconds / total, duration(seconds))
        for name, seconds in result.wall_seconds.items()
    ]


def _facts(result: Result, config: LoopConfig) -> list[tuple[str, str]]:
    gib = 2**30
    return [
        ("model", result.versions.get("model", config.model.path.name)),
        ("browser", result.versions.get("browser", "")),
        ("tasks", f"{len(config.tasks.ids)} of {config.tasks.suite}"),
        ("held-out seeds", f"{config.eval.seeds.count} a task, temperature {result.temperature:g}"),
        ("training seed", str(result.seed)),
        ("peak memory", f"{result.peak_memory_bytes / gib:.1f} GiB"),
        ("machine", f"{result.cores} cores, {result.memory_bytes / gib:.0f} GiB"),
        ("commit", result.git_commit[:12] or "-"),
    ]


def report(name: str, *, runs: Path) -> None:
    """Writes the page of a finished run and says where it is."""
    run = find_run(runs, name)
    if not run.result.is_file() and read_studies(run):
        write_studies(run)
        Console().print(f"{run.report}", highlight=False, soft_wrap=True)
        return
    if not run.result.is_file():
        raise ConfigError(f"run {run.id} is not finished: continue it with `webagent train --resume --run {run.id}`")
    Console().print(f"{write_report(run)}", highlight=False, soft_wrap=True)
