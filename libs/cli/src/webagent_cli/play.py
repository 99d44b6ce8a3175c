"""`webagent play`: watch one episode, step by step.

Plays on the stack that `webagent up` keeps, or starts what one episode needs: no queue and no trainer.
"""

import asyncio
import random
from pathlib import Path

import grpc
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.errors import from_rpc

from webagent_cli.clients import Clients
from webagent_cli.config import load_loop, parse_settings
from webagent_cli.doctor import refuse_missing
from webagent_cli.episodes import Job, Player, Trajectory, run_episode
from webagent_cli.models import prepare_model
from webagent_cli.offers import check_experts, check_offers
from webagent_cli.payloads import local_payload
from webagent_cli.runs import Run, find_run, new_run
from webagent_cli.stack import Stack, free_ports

SERVICES = ("env", "inference", "evaluator", "rollout")
SHOWN_CHARACTERS = 1600
STATUS_STYLES = {
    env_pb2.ACTION_STATUS_OK: ("ok", "green"),
    env_pb2.ACTION_STATUS_FAILED: ("failed", "yellow"),
    env_pb2.ACTION_STATUS_REJECTED: ("rejected", "red"),
}
VERDICTS = {
    evaluator_pb2.OUTCOME_SUCCESS: ("SUCCESS", "bold green"),
    evaluator_pb2.OUTCOME_FAILURE: ("FAILURE", "bold red"),
    evaluator_pb2.OUTCOME_INVALID: ("INVALID", "bold yellow"),
}


def play(
    task: str, *, path: Path, runs: Path, run: str | None, seed: int | None, expert: bool, settings: list[str]
) -> None:
    """Plays one episode of a task with the model, a run's policy, or the scripted expert."""
    console = Console()
    trained = find_run(runs, run) if run else None
    overrides = {**parse_settings(settings), "tasks.ids": [task]}
    config = load_loop(trained.config if trained else path, overrides)
    check_offers(config)
    if expert:
        check_experts(config.tasks.suite, config.tasks.ids)
    prepare_model(config.model, console.print)
    refuse_missing(config)
    here = trained or new_run(runs, None, label="play")
    job = Job(task, random.randrange(2**31) if seed is None else seed, screenshots=True)  # noqa: S311 - no secret
    services = ("nats", *SERVICES) if trained else SERVICES
    with Stack(here, config, ports=free_ports(), services=services) as stack:
        with console.status("starting") as status:
            stack.start_all(lambda service, seconds: status.update(f"{service} ready in {seconds:.1f} s"))
        asyncio.run(
            _watch(stack, Player(here.id, "play", config, policy="expert" if expert else "sampled"), job, here, console)
        )


async def _watch(stack: Stack, player: Player, job: Job, run: Run, console: Console) -> None:
    spec = player.spec(job)
    pictures = run.path / "play" / f"{job.task}-{job.seed}"
    async with Clients(stack.addresses) as clients:
        try:
            async for event in run_episode(clients.rollout, spec, bound=player.config.eval.episode_seconds):
                if event.HasField("started"):
                    console.rule(f"[bold]{job.task}[/]  seed {job.seed}", align="left")
                    console.print(Text(event.started.instruction, style="bold cyan"))
                elif event.HasField("turn"):
                    _show_turn(event.turn.turn_index, event.turn.turn, console)
                else:
                    _save_pictures(event.finished.trajectory, run, pictures)
                    _show_end(event.finished.trajectory, pictures, console)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


def _show_turn(index: int, turn: trajectory_pb2.Turn, console: Console) -> None:
    page = turn.observation_text or f"({turn.observation_ref.size_bytes} bytes at {turn.observation_ref.uri})"
    if len(page) > SHOWN_CHARACTERS:
        page = page[:SHOWN_CHARACTERS] + " ..."
    console.print(Panel(Text(page), title=f"turn {index}: page", title_align="left", border_style="dim"))
    console.print(Text(turn.reply_text.strip() or "(nothing)", style="bold"))
    word, style = STATUS_STYLES.get(turn.result.status, ("-", "dim"))
    console.print(
        Text(f"  {word} ", style=style),
        Text(f"{turn.result.message}  {turn.generate_seconds:.2f} s to reply, {turn.step_seconds:.2f} s to act"),
    )


def _show_end(trajectory: Trajectory, pictures: Path, console: Console) -> None:
    word, style = VERDICTS.get(trajectory.verdict.outcome, ("NO VERDICT", "bold yellow"))
    console.rule(align="left")
    console.print(Text(word, style=style), Text(trajectory.reason), Text(trajectory.detail))
    for check in trajectory.verdict.checks:
        console.print(Text(f"  {check.kind}: {check.explanation}  {check.evidence_json}"))
    reason = trajectory_pb2.EndReason.Name(trajectory.end_reason).removeprefix("END_REASON_").lower().replace("_", " ")
    console.print(f"{len(trajectory.turns)} turns, ended by {reason}; screenshots in {pictures}", highlight=False)


def _save_pictures(trajectory: Trajectory, run: Run, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for index, turn in enumerate(trajectory.turns):
        if picture := local_payload(run, turn.screenshot_ref):
            (directory / f"turn-{index}.png").write_bytes(picture)
