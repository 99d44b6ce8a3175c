"""Keeps supervisord, and leaves nothing behind: whatever dies first, every process below this one is ended.

Run as `python -m webagent_cli.keeper PARENT_PID CONF`. It promises:

- Orphans come here, not to init (it is a child subreaper). One whose service was ended or restarted is killed with
  all its children: the browsers of an env that was killed, the workers of a trainer that was killed.
- When its parent dies, by whatever signal, the kernel sends it SIGTERM.
- SIGTERM asks supervisord for an orderly end; a second SIGTERM kills everything at once.
- It ends when supervisord has, and nothing below it is alive then.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 1.0
# supervisord sets it for each program, and a program's descendants inherit it.
SERVICE_VARIABLE = "SUPERVISOR_PROCESS_NAME"
WAITED_FOR = {signal.SIGTERM, signal.SIGCHLD}


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def _prepare_supervisor() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _service_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(SERVICE_VARIABLE, "")
    except psutil.Error:
        return ""


def _kill_tree(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


def _kill_orphans(supervisor: int) -> None:
    """Kills the adopted processes whose service is gone; an orphan of a living service is that service's business."""
    orphans = [child for child in psutil.Process().children() if child.pid != supervisor]
    if not orphans:
        return
    try:
        services = {_service_of(child): child.create_time() for child in psutil.Process(supervisor).children()}
    except psutil.NoSuchProcess:
        return
    for orphan in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = services.get(_service_of(orphan))
            if started is None or started > orphan.create_time():
                _kill_tree(orphan)


def _collect_dead(supervisor: int) -> None:
    """Reaps adopted processes; supervisord's exit status belongs to its Popen."""
    while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if found.si_pid == supervisor:
            return
        os.waitpid(found.si_pid, 0)


def _kill_everything() -> None:
    """Kills rounds of descendants until none is left, for a killed process may have forked before it died."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            _kill_tree(child)
        psutil.wait_procs(children, timeout=POLL_SECONDS)


def keep(conf: str) -> None:
    """Runs supervisord until it ends, passing SIGTERM on and ending orphans meanwhile."""
    command = [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", conf]
    # preexec_fn is safe here: this process has one thread.
    supervisor = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_prepare_supervisor)  # noqa: S603, PLW1509
    terms = 0
    while supervisor.poll() is None:
        received = signal.sigtimedwait(WAITED_FOR, POLL_SECONDS)
        if received and received.si_signo == signal.SIGTERM:
            terms += 1
            supervisor.send_signal(signal.SIGTERM if terms == 1 else signal.SIGKILL)
        _kill_orphans(supervisor.pid)
        _collect_dead(supervisor.pid)
    _kill_everything()


def main() -> int:
    """Sets the process up for its duties before it starts anything."""
    parent, conf = int(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 1
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    keep(conf)
    return 0


if __name__ == "__main__":
    sys.exit(main())
