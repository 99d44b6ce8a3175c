"""`webagent study`: one question about a policy, answered by evaluations that differ in one thing.

turns      the turn budget (test-time scaling)
thinking   a chain of thought before each action, against none
samples    several samples of each page: pass@k and mean@k
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webagent.evaluator.v1 import evaluator_pb2
from webagent_runtime.config import ConfigError

from webagent_cli.clients import CALL_SECONDS, Clients
from webagent_cli.comparison import compared
from webagent_cli.config import LoopConfig
from webagent_cli.episodes import Trajectory
from webagent_cli.evaluation import evaluation_jobs, play_phase, results, sites_of, unsettled
from webagent_cli.progress import Display
from webagent_cli.report import write_report
from webagent_cli.runs import Run, shown
from webagent_cli.settings import laid_over
from webagent_cli.standalone import opened, play
from webagent_cli.studies import KINDS, Point, Study, write_studies
from webagent_cli.tables import Sheet, sheet_of
from webagent_cli.who import Who

TITLES = {"turns": "The turn budget", "thinking": "Thinking before acting", "samples": "Several samples of each page"}


@dataclass(frozen=True)
class Arm:
    """One of the evaluations of a study."""

    name: str
    config: LoopConfig
    x: float
    sample: int = 0


Played = list[tuple[Arm, list[Trajectory]]]


def budgets_of(text: str) -> list[int]:
    """Turn budgets as they are typed: whole numbers with commas between them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 100 for part in parts):
        raise ConfigError(f"--budgets takes turn budgets from 1 to 100 with commas between them, not {text!r}")
    return [int(part) for part in parts]


def arms_of(kind: str, config: LoopConfig, *, budgets: Sequence[int], samples: int) -> list[Arm]:
    """What a study plays."""

    def varied(**blocks: dict[str, object]) -> LoopConfig:
        return LoopConfig.model_validate(laid_over(config.model_dump(), blocks))

    match kind:
        case "turns":
            return [Arm(f"turns-{n}", varied(eval={"max_turns": n}), n) for n in sorted(set(budgets))]
        case "thinking":
            return [
                Arm("acting", varied(agent={"thinking": False}), 0),
                Arm("thinking", varied(agent={"thinking": True}), 1),
            ]
        case "samples":
            return [Arm(f"sample-{sample}", config, sample, sample) for sample in range(1, samples + 1)]
    raise ConfigError(f"unknown study {kind!r}: there are {', '.join(KINDS)}")


def study(
    kind: str,
    path: Path,
    who: Who,
    *,
    runs: Path,
    name: str | None,
    budgets: Sequence[int],
    samples: int,
    settings: list[str],
) -> None:
    """Plays what is missing of a study, prints its table and writes both table and plot into report.html."""
    display = Display()
    config, here = opened(path, who, runs=runs, name=name, label="study", settings=settings)
    todo = evaluation_jobs(config, "study")
    arms = arms_of(kind, config, budgets=budgets, samples=samples)
    players = [who.player(here, arm.config, suffix=f".{arm.name}", sample=arm.sample) for arm in arms]
    lacking = any(unsettled(player, todo, here.episodes(player.phase)) for player in players)

    async def work(clients: Clients) -> None:
        played: Played = []
        for arm, player in zip(arms, players, strict=True):
            outcomes = await play_phase(clients, player, todo, here.episodes(player.phase), display)
            played.append((arm, [outcomes[job.task, job.seed] for job in todo]))
        found = await (by_samples if kind == "samples" else by_arms)(clients, kind, played)
        here.study(kind).write_text(found.model_dump_json(indent=2) + "\n")
        _show(display, here, found)

    play(here, config, who, display, work, lacking=lacking)


async def by_arms(clients: Clients, kind: str, played: Played) -> Study:
    """Success of each arm, each paired with the first."""
    rows = await compared(clients, {arm.name: episodes for arm, episodes in played})
    sheet = sheet_of(rows)
    return Study(
        kind=kind,
        title=TITLES[kind],
        plot="Held-out success",
        caption="Successes over scored episodes of the same pages.",
        x_label="turns" if kind == "turns" else "",
        points=[
            Point(label=arm.name, x=arm.x, rate=row.overall.rate, low=row.overall.low, high=row.overall.high)
            for (arm, _), row in zip(played, rows, strict=True)
        ],
        header=sheet.header,
        lines=sheet.lines,
        notes=sheet.notes,
    )


async def by_samples(clients: Clients, kind: str, played: Played) -> Study:
    """Chance that k samples of a page hold a success, by k."""
    sites = sites_of(episode for _, episodes in played for episode in episodes)
    request = evaluator_pb2.SummarizeRequest()
    for arm, episodes in played:
        for result in results(episodes, sites):
            request.results.add().CopyFrom(result)
            request.results[-1].attempt = arm.sample
    points, lines = [], []
    for k in range(1, len(played) + 1):
        request.k = k
        summary = await clients.evaluator.Summarize(request, timeout=CALL_SECONDS)
        rate = summary.pass_at_k if summary.HasField("pass_at_k") else None
        points.append(Point(label=f"pass@{k}", x=k, rate=rate))
        lines.append([str(k), *(_percent(summary, name) for name in ("pass_at_k", "mean_at_k"))])
    return Study(
        kind=kind,
        title=TITLES[kind],
        plot="pass@k",
        caption="Chance that at least one of k samples of a page succeeds, unbiased estimate.",
        x_label="k",
        points=points,
        header=["k", "pass@k", "mean over samples"],
        lines=lines,
        notes=[] if summary.complete else [f"INCOMPLETE: {summary.missing_tasks} tasks have no scored episode."],
    )


def _percent(summary: evaluator_pb2.SummarizeResponse, name: str) -> str:
    return f"{100 * getattr(summary, name):.1f} %" if summary.HasField(name) else "-"  # type: ignore[arg-type]


def _show(display: Display, run: Run, found: Study) -> None:
    display.console.print(Sheet(found.header, found.lines, found.notes).rich())
    if run.result.is_file():
        write_report(run)
    else:
        write_studies(run)
    display.say(f"report: {shown(run.report)}")
