"""Thousands of sessions in a row whose clients die at random: what is left of them, and how memory goes.

    python benchmarks/env/soak.py [--sessions 10000] [--clients 3] [--state FILE] [--out FILE]

The service is a process of its own. Each client is one, too: it plays MiniWoB sessions until, in about one of ten, it
kills itself with SIGKILL at a random moment: while it opens, steps, reads, or between. Then the next one starts. When
all are played and the leases have run out, nothing may be left: no session, no context, process, descriptor or file
beyond those of the beginning; and what the whole tree of processes holds in memory is compared, the last fifth against
the first after the warm-up.

With --state a run that was interrupted goes on where it stopped: with a fresh service, whose share is checked like a
whole run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from parts import tell
from webagent_env.client import EnvClient
from webagent_runtime.errors import ServiceError
from webagent_runtime.testing import free_port

TASKS = ("click-checkboxes", "enter-text", "click-option", "click-test-2", "focus-text", "click-tab", "login-user")
LEASE_SECONDS = 5
DEATHS = 0.1
FLAT = 0.2
WARM_UP = 0.1


# ---- a client ----------------------------------------------------------------------------------------------------
async def client(target: str, name: str) -> None:
    """Plays sessions until it dies; says each one's end on its output."""
    chance = random.Random(name)
    async with EnvClient(target) as env:
        for number in range(1_000_000):
            if chance.random() < DEATHS:
                loop = asyncio.get_running_loop()
                loop.call_later(chance.uniform(0.0, 0.5), os.kill, os.getpid(), signal.SIGKILL)
            task = f"miniwob/{chance.choice(TASKS)}"
            session = await env.open(task, seed=chance.randrange(1000), session_id=f"{name}-{number}")
            async with session:
                for _ in range(chance.randrange(4)):
                    if session.over:
                        break
                    await session.act(chance.choice(['do(action="Click", element="0")', "nonsense", "go_backward()"]))
                await session.observe()
            sys.stdout.write("played\n")
            sys.stdout.flush()


# ---- the service -------------------------------------------------------------------------------------------------
@asynccontextmanager
async def service(directory: Path, clients: int) -> AsyncIterator[tuple[psutil.Process, str]]:
    """The service's process, and its address."""
    target = f"127.0.0.1:{free_port()}"
    settings = {
        "server.port": target.rpartition(":")[2],
        "state_directory": directory,
        "sessions.capacity": clients * 4,
        "sessions.lease_seconds": LEASE_SECONDS,
        "sessions.lifetime_seconds": 60,
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = (sys.executable, "-m", "webagent_env", *options)
    started = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with EnvClient(target, timeout=5) as env:
            for _ in range(100):
                with contextlib.suppress(ServiceError):
                    await env.capabilities()
                    break
                await asyncio.sleep(0.5)
        yield psutil.Process(started.pid), target
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
            await started.wait()


def tree(process: psutil.Process) -> list[psutil.Process]:
    """The service, its driver and its browser."""
    return [process, *process.children(recursive=True)]


def memory_mib(process: psutil.Process) -> float:
    """What they hold, what they share counted once."""
    total = 0
    for each in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += each.memory_full_info().pss
    return total / 2**20


def held(process: psutil.Process, directory: Path) -> dict[str, int]:
    """What could be left behind."""
    processes = tree(process)
    return {
        "processes": len(processes),
        "descriptors": sum(each.num_fds() for each in processes[:2]),
        "files": sum(1 for _ in directory.rglob("*")),
    }


# ---- the run -----------------------------------------------------------------------------------------------------
class Share:
    """What is played against one service."""

    def __init__(self, target: str, process: psutil.Process, sessions: int) -> None:
        self.played = 0
        self.deaths = 0
        self.memory: list[float] = []
        self.over = asyncio.Event()
        self._target = target
        self._process = process
        self._sessions = sessions
        self._measured = 0

    async def clients(self, place: int) -> None:
        """One client after another in one place."""
        number = 0
        while not self.over.is_set():
            number += 1
            name = f"c{os.getpid()}-{place}-{number}"
            command = (sys.executable, __file__, "--client", name, "--target", self._target)
            one = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            ended = False
            try:
                async for _ in one.stdout:
                    self._count()
                    if self.over.is_set():
                        break
                else:
                    ended = True
            finally:
                if not ended:
                    with contextlib.suppress(ProcessLookupError):
                        one.kill()
            said = await one.stderr.read()
            if await one.wait() != -signal.SIGKILL and ended:
                raise RuntimeError(f"a client failed: {said.decode()[-2000:]}")
            self.deaths += 1
            self._count()

    def _count(self) -> None:
        self.played += 1
        if self.played >= self._sessions:
            self.over.set()

    async def watch(self) -> None:
        """Measures memory at a hundred moments of the run."""
        each = max(1, self._sessions // 100)
        while not self.over.is_set():
            if self.played // each > self._measured:
                self._measured = self.played // each
                self.memory.append(await asyncio.to_thread(memory_mib, self._process))
                sys.stderr.write(f"\r{self.played} sessions, {self.deaths} deaths, {self.memory[-1]:.0f} MiB ")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), 0.5)
        sys.stderr.write("\n")


async def emptied(target: str, process: psutil.Process, directory: Path, before: dict[str, int]) -> dict[str, Any]:
    """What is left once the leases have run out."""
    deadline = time.monotonic() + 10 * LEASE_SECONDS
    left: dict[str, Any] = {}
    while time.monotonic() < deadline:
        async with EnvClient(target) as env:
            sessions = (await env.capabilities()).sessions
        now = held(process, directory)
        left = {"sessions": sessions, **{name: max(0, now[name] - before[name]) for name in before}}
        if not any(left.values()):
            break
        await asyncio.sleep(1)
    return left


async def filled(target: str, capacity: int) -> bool:
    """Whether every slot can be taken."""
    async with EnvClient(target) as env:
        opened = [await env.open("miniwob/click-test-2") for _ in range(capacity)]
        for session in opened:
            await session.close()
    return len(opened) == capacity


async def run(sessions: int, clients: int) -> dict[str, Any]:
    """Plays a share; an interrupt ends it early, in order."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        async with service(Path(name), clients) as (process, target):
            await filled(target, clients)
            before = await settled(target, process, Path(name))
            share = Share(target, process, sessions)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, share.over.set)
            begun = time.monotonic()
            await asyncio.gather(share.watch(), *(share.clients(place) for place in range(clients)))
            took = time.monotonic() - begun
            left = await emptied(target, process, Path(name), before)
            whole = await filled(target, clients * 4)
    warm = share.memory[int(len(share.memory) * WARM_UP) :] or [1.0]
    fifth = max(1, len(warm) // 5)
    return {
        "sessions": share.played,
        "deaths": share.deaths,
        "sessions_per_second": round(share.played / took, 2),
        "left": left,
        "every_slot_free": whole,
        "memory_first_mib": round(statistics.median(warm[:fifth])),
        "memory_last_mib": round(statistics.median(warm[-fifth:])),
        "memory_last_over_first": round(statistics.median(warm[-fifth:]) / statistics.median(warm[:fifth]), 3),
    }


async def settled(target: str, process: psutil.Process, directory: Path) -> dict[str, int]:
    """What the service holds when nothing goes on and its warm contexts are as few as they get."""
    await emptied(target, process, directory, {})
    seen = [held(process, directory)]
    while len(seen) < 4 * LEASE_SECONDS:
        await asyncio.sleep(0.5)
        seen.append(held(process, directory))
    return {name: max(each[name] for each in seen[-LEASE_SECONDS:]) for name in seen[0]}


def main() -> None:
    """Plays what is missing, and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=3, help="at the same time")
    parser.add_argument("--state", type=Path, help="file with the shares played so far")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        asyncio.run(client(given.target, given.client))
        return
    shares = json.loads(given.state.read_text(encoding="utf-8")) if given.state and given.state.exists() else []
    missing = given.sessions - sum(share["sessions"] for share in shares)
    if missing > 0:
        shares.append(asyncio.run(run(missing, given.clients)))
        if given.state:
            given.state.write_text(json.dumps(shares, indent=2), encoding="utf-8")
    played = sum(share["sessions"] for share in shares)
    aims = {
        f"{given.sessions} sessions were played": played >= given.sessions,
        "nothing is left": not any(any(share["left"].values()) for share in shares),
        "every slot is free": all(share["every_slot_free"] for share in shares),
        "memory is flat within 20 %": all(share["memory_last_over_first"] <= 1 + FLAT for share in shares),
    }
    tell({"sessions": played, "deaths": sum(share["deaths"] for share in shares), "shares": shares}, aims, given.out)
    sys.exit(0 if all(aims.values()) else 1)


if __name__ == "__main__":
    main()
