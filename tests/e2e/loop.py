"""A small whole loop as a person starts it, for tests that interfere with it: two tasks, minutes on two cores."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from webagent_cli.ledger import read_counts
from webagent_cli.runs import Run

ROOT = Path(__file__).resolve().parents[2]
WEBAGENT = Path(sys.executable).parent / "webagent"
NAME = "small"
SETTINGS = (
    "tasks.ids=[click-button, enter-text]",
    "eval.seeds.count=3",
    "eval.zero_shot_seeds=1",
    "demos.seeds.count=8",
    "bc.epochs=1",
    "rl.iterations=2",
    "rl.groups=2",
    "rl.group_size=3",
    "rl.deadline_seconds=120",
    "agent.max_turns=3",
    "stack.trainer.run.checkpoints.every=1",
)


PR_SET_PDEATHSIG = 1


def _end_with_the_test() -> None:
    """Has the kernel end this process when the test does, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Loop:
    """One `webagent train` process and everything below it."""

    def __init__(self, runs: Path, *arguments: str) -> None:
        command = [str(WEBAGENT), "train", "--runs", str(runs), "--run", NAME, *arguments]
        for setting in SETTINGS:
            command += ["--set", setting]
        self.run = Run(runs / NAME)
        self._log = (runs / "command.log").open("ab")
        # A session of its own, as a terminal gives: the test's own Ctrl-C must not reach it.
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_the_test,  # noqa: PLW1509 - the child only calls the kernel
        )
        self.seen: dict[int, psutil.Process] = {}

    @property
    def output(self) -> str:
        """What the command has printed so far."""
        return Path(self._log.name).read_text()

    def family(self) -> list[psutil.Process]:
        """All processes of the loop that are alive; every one ever seen is remembered."""
        try:
            alive = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.seen.update((one.pid, one) for one in alive)
        return alive

    def service(self, name: str) -> psutil.Process | None:
        """The process of a service, if it runs now."""
        for one in self.family():
            try:
                if any(part.endswith(f"webagent-{name}") for part in one.cmdline()[:2]):
                    return one
            except psutil.NoSuchProcess:
                continue
        return None

    def until(self, condition: Callable[[], bool], *, what: str, seconds: float = 900.0) -> None:
        """Waits for something, noting the loop's processes meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.family()
            assert self.process.poll() is None, f"the loop ended before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s:\n{self.output}"
            time.sleep(0.1)

    def until_rl(self) -> None:
        """Waits until the first RL episodes have come back and more are under way."""
        self.until(lambda: read_counts(self.run)["scored"] >= 2, what="RL episode")

    def wait(self, seconds: float = 900.0) -> int:
        """Waits for the loop's end, noting its processes meanwhile."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.family()
            assert time.monotonic() < deadline, f"it did not end within {seconds:.0f} s:\n{self.output}"
            time.sleep(0.2)
        return self.process.returncode

    def left_behind(self) -> list[str]:
        """Command lines of processes of the loop that outlive it."""
        left = []
        for one in self.seen.values():
            try:
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    left.append(" ".join(one.cmdline())[:120])
            except psutil.NoSuchProcess:
                continue
        return left

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Ends the loop whatever it does; its keeper ends the rest."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(60)
        self._log.close()
