"""`webagent rescore`: judges stored evaluations again, with no browser, and says which verdicts change.

Each episode's verdict is judged from its own evidence by the evaluator that is installed now, by another dialect if one
is named. The judged episodes are written beside the old ones; those that cannot be judged again stay as they were. Of a
phase that was played under several settings, the episodes of the last ones are judged.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from rich.table import Table
from webagent.env.v1 import probe_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import from_rpc

from webagent_cli.clients import CALL_SECONDS, Clients
from webagent_cli.config import load_loop, parse_settings
from webagent_cli.episodes import Trajectory, of_last_settings
from webagent_cli.journal import read_episodes
from webagent_cli.progress import Display
from webagent_cli.runs import RESCORED, Run, find_run
from webagent_cli.standalone import with_stack

DIALECTS = {
    "webarena": probe_pb2.WEB_ARENA_DIALECT_UPSTREAM,
    "vab_lite": probe_pb2.WEB_ARENA_DIALECT_VAB_LITE,
    "verified": probe_pb2.WEB_ARENA_DIALECT_VERIFIED,
}
OUTCOMES = {
    evaluator_pb2.OUTCOME_SUCCESS: "SUCCESS",
    evaluator_pb2.OUTCOME_FAILURE: "FAILURE",
    evaluator_pb2.OUTCOME_INVALID: "INVALID",
}


@dataclass(frozen=True)
class Manner:
    """How rules are read; None: each as it says itself."""

    dialect: str | None = None
    strict: bool | None = None
    unanswered_is_na: bool | None = None

    def request(self) -> evaluator_pb2.RescoreRequest:
        """What is asked of the evaluator; ConfigError if there is no such dialect."""
        if self.dialect is not None and self.dialect not in DIALECTS:
            raise ConfigError(f"unknown dialect {self.dialect!r}: there are {', '.join(DIALECTS)}")
        return evaluator_pb2.RescoreRequest(
            dialect=DIALECTS[self.dialect] if self.dialect else None,
            strict=self.strict,
            unanswered_is_na=self.unanswered_is_na,
        )

    def suffix(self) -> str:
        """What the files of judging so end in, after the phase; each manner has its own."""
        switches = {"strict": self.strict, "na": self.unanswered_is_na}
        said = [name if value else f"no_{name}" for name, value in switches.items() if value is not None]
        return "-".join([RESCORED, *([self.dialect] if self.dialect else []), *said])


@dataclass
class Rescored:
    """What came of judging a phase again."""

    episodes: list[Trajectory] = field(default_factory=list)
    changes: list[tuple[Trajectory, Trajectory]] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)


def rescore(name: str, *, runs: Path, phase: str | None, manner: Manner, settings: list[str]) -> None:
    """Judges the evaluations of a run again and writes what came of it; `settings` may name a judge."""
    request = manner.request()
    display, run = Display(), find_run(runs, name)
    files = {each: path for each, path in run.evaluations().items() if RESCORED not in each}
    if phase is not None and phase not in files:
        raise ConfigError(f"run {run.id} has no evaluation {phase}: it has {', '.join(files) or 'none'}")

    async def work(clients: Clients) -> None:
        for each in [phase] if phase is not None else list(files):
            again = await rescore_episodes(clients, of_last_settings(read_episodes(files[each])), request)
            path = run.episodes(each + manner.suffix())
            _write(path, again)
            _show(display, run, each, again, path)

    with_stack(run, load_loop(run.config, parse_settings(settings)), display, work, services=("evaluator",))


async def rescore_episodes(
    clients: Clients, episodes: list[Trajectory], wanted: evaluator_pb2.RescoreRequest
) -> Rescored:
    """Judges episodes again, in order."""
    again = Rescored()
    for old in episodes:
        request = evaluator_pb2.RescoreRequest(verdict=old.verdict)
        request.MergeFrom(wanted)
        try:
            response = await clients.evaluator.Rescore(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            cause = from_rpc(error)
            if cause.code not in {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT}:
                raise cause from error
            again.kept[cause.reason] += 1
            again.episodes.append(old)
            continue
        new = _with_verdict(old, response.verdict)
        again.episodes.append(new)
        if response.changed:
            again.changes.append((old, new))
    return again


def _with_verdict(old: Trajectory, verdict: evaluator_pb2.Verdict) -> Trajectory:
    new = Trajectory()
    new.CopyFrom(old)
    new.verdict.CopyFrom(verdict)
    invalid = verdict.outcome == evaluator_pb2.OUTCOME_INVALID
    new.status = trajectory_pb2.EPISODE_STATUS_INVALID if invalid else trajectory_pb2.EPISODE_STATUS_SCORED
    new.reason = verdict.reason
    new.ClearField("detail")
    if invalid:
        new.ClearField("reward")
    else:
        new.reward = float(verdict.outcome == evaluator_pb2.OUTCOME_SUCCESS)
    return new


def _write(path: Path, again: Rescored) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    for episode in again.episodes:
        delimited.append(temporary, episode)
    if again.episodes:
        temporary.replace(path)


def _show(display: Display, run: Run, phase: str, again: Rescored, path: Path) -> None:
    display.say(f"{run.id} {phase}: {len(again.changes)} of {len(again.episodes)} verdicts change: {path}")
    if again.changes:
        table = Table("task", "seed", "was", "is", "why")
        for old, new in again.changes:
            spec, verdict = new.episode, new.verdict
            why = next((check.explanation for check in verdict.checks if not check.passed), verdict.reason)
            was, now = OUTCOMES.get(old.verdict.outcome, "-"), OUTCOMES[verdict.outcome]
            table.add_row(spec.task.task_id, str(spec.seed), was, now, why)
        display.console.print(table)
    for reason, count in again.kept.items():
        display.say(f"  {count} could not be judged again and stay as they were: {reason}")
