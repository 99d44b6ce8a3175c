"""Run directories: where each thing of a run lies, and how a run is named and found.

runs/<id>/  config.yaml  config/<service>.yaml  logs/<service>.log  ledger.sqlite  archive.trajectories
            demos.trajectories  eval-<phase>.trajectories  eval-<phase>.md  checkpoints/  policies/<n>/
            payloads/  nats/  phases.json  result.json  study-<kind>.json  report.html
"""

import datetime
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from webagent_runtime.config import ConfigError
from webagent_runtime.queue.streams import RUN_ID

LATEST = "latest"
RESCORED = ".rescored"


def shown(path: Path) -> Path:
    """A path as one would type it here: relative where it lies below the working directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@dataclass(frozen=True)
class Run:
    """One run and its files."""

    path: Path

    @property
    def id(self) -> str:
        """Name of the run, as on the queue and in the ledger."""
        return self.path.name

    @property
    def config(self) -> Path:
        """The loop's configuration, as resolved when the run began."""
        return self.path / "config.yaml"

    def service_config(self, service: str) -> Path:
        """The generated configuration of one service."""
        return self.path / "config" / f"{service}.yaml"

    @property
    def logs(self) -> Path:
        """One log file for each process."""
        return self.path / "logs"

    def log(self, service: str) -> Path:
        """Log of one service."""
        return self.logs / f"{service}.log"

    @property
    def demos(self) -> Path:
        """The demonstrations, as delimited trajectories."""
        return self.path / "demos.trajectories"

    @property
    def reasoned_demos(self) -> Path:
        """The demonstrations with a chain of thought."""
        return self.path / "demos-cot.trajectories"

    def episodes(self, phase: str) -> Path:
        """The evaluation episodes of a phase, as delimited trajectories."""
        return self.path / f"eval-{phase}.trajectories"

    def evaluations(self) -> dict[str, Path]:
        """The evaluation phases that were played, or judged again, and their episodes."""
        return {path.stem.removeprefix("eval-"): path for path in sorted(self.path.glob("eval-*.trajectories"))}

    def table(self, phase: str) -> Path:
        """The success rates of a phase, as Markdown."""
        return self.path / f"eval-{phase}.md"

    def study(self, kind: str) -> Path:
        """The figures of a study."""
        return self.path / f"study-{kind}.json"

    @property
    def archive(self) -> Path:
        """Every trajectory that the trainer took."""
        return self.path / "archive.trajectories"

    @property
    def ledger(self) -> Path:
        """The trainer's SQLite ledger."""
        return self.path / "ledger.sqlite"

    @property
    def metrics(self) -> Path:
        """The trainer's numbers, one JSON line for each iteration."""
        return self.path / "metrics.jsonl"

    @property
    def payloads(self) -> Path:
        """Screenshots and long observations."""
        return self.path / "payloads"

    @property
    def record(self) -> Path:
        """What has been done so far: phases and their wall time."""
        return self.path / "phases.json"

    @property
    def result(self) -> Path:
        """The figures of the finished run."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Refuses a run whose processes are alive; yields the locked descriptor, which a child may keep open."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        except BlockingIOError:
            raise ConfigError(f"run {self.id} is in use by another webagent command: end that one first") from None
        finally:
            os.close(descriptor)

    def mark_latest(self) -> None:
        """Points runs/latest here, atomically."""
        link = self.path.parent / LATEST
        temporary = self.path.parent / f".{LATEST}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.path.name)
        temporary.replace(link)


def new_run(root: Path, name: str | None, *, label: str) -> Run:
    """Makes the directory of a new run, whose name the queue takes too; one that there is already is refused."""
    stamp = datetime.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    run_id = name or f"{label.replace('.', '_')}-{stamp}"
    if not RUN_ID.fullmatch(run_id) or run_id == LATEST:
        raise ConfigError(f"a run's name is 1 to 64 of A-Z a-z 0-9 _ - and not {LATEST!r}: {run_id!r} is not")
    path = (root / run_id).resolve()
    if path.exists():
        raise ConfigError(f"there is a run {run_id!r} already: continue it with --resume, or choose another --run")
    for directory in (path, path / "config", path / "logs", path / "payloads"):
        directory.mkdir(parents=True)
    return Run(path)


def find_run(root: Path, name: str) -> Run:
    """Finds a run by its name, by `latest`, or by its path."""
    for path in (root / name, Path(name)):
        if (path / "config.yaml").is_file() or (path / "ledger.sqlite").is_file():
            return Run(path.resolve())
    known = sorted(entry.name for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    raise ConfigError(f"no run {name!r} in {root}/" + (f": there are {', '.join(known)}" if known else ", it is empty"))
