"""What must not outlive a service: its processes and profile directories.

Each service keeps an instance directory, whose lock it holds for as long as it lives; the kernel lets go of the lock
even after `kill -9`. At start a service takes every directory whose lock is free, ends the processes recorded there
and removes the directory. So it never touches what belongs to a service that lives, on the same machine or not.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil
import structlog

log = structlog.get_logger()

_LOCK = "lock"
_PROCESSES = "processes.json"


class InstanceDirectory:
    """This service's own directory below the state directory, locked while it lives."""

    def __init__(self, state_directory: Path) -> None:
        state_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock: int | None = None
        while lock is None:  # a service that cleans up at this moment may take the directory before it is locked
            self.path = Path(tempfile.mkdtemp(prefix="instance-", dir=state_directory))
            lock = _lock(self.path)
        self._lock: int | None = lock

    def record(self, processes: Iterable[psutil.Process]) -> None:
        """Notes the processes that have to end with this service."""
        known = [{"pid": process.pid, "started": process.create_time()} for process in processes]
        partial = self.path / f"{_PROCESSES}.new"
        partial.write_text(json.dumps(known))
        partial.replace(self.path / _PROCESSES)

    def remove(self) -> None:
        """Lets go of the directory; everything in it is deleted."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def clean_up(state_directory: Path) -> int:
    """Ends and removes what dead predecessors left; returns how many there were."""
    found = 0
    for directory in sorted(state_directory.glob("instance-*")):
        lock = _lock(directory)
        if lock is None:
            continue
        killed = [process.pid for process in _recorded(directory) if kill_tree(process)]
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)
        found += 1
        log.warning("leftovers_removed", directory=str(directory), killed=killed)
    return found


def kill_tree(process: psutil.Process) -> bool:
    """Ends a process, its process group if it leads one, and all its descendants; returns whether it lived."""
    try:
        tree = [process, *process.children(recursive=True)]
        leads = os.getpgid(process.pid) == process.pid
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    if leads and process.pid != os.getpgid(0):
        _signal_group(process.pid)
    for each in tree:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    return True


def _signal_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _recorded(directory: Path) -> list[psutil.Process]:
    """The recorded processes that still run; a pid that was given to another process since does not count."""
    try:
        entries = json.loads((directory / _PROCESSES).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    alive = []
    for entry in entries:
        try:
            process = psutil.Process(entry["pid"])
            if abs(process.create_time() - entry["started"]) < 1.0:
                alive.append(process)
        except psutil.NoSuchProcess:
            continue
    return alive


def _lock(directory: Path) -> int | None:
    """Takes the directory's lock, or None if a living service holds it or the directory is gone."""
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
