"""The trainer's run as the command sees it: start it, watch it, survive its restarts.

The trainer resumes from its newest checkpoint when the same run is started again, so a trainer that was killed is
waited for and told once more.
"""

from typing import NoReturn

import grpc
import yaml
from webagent.trainer.v1 import trainer_pb2
from webagent_runtime.errors import from_rpc

from webagent_cli.clients import CALL_SECONDS, Clients
from webagent_cli.config import LoopConfig
from webagent_cli.errors import RunError
from webagent_cli.processes import log_tail
from webagent_cli.progress import Display, PhaseView
from webagent_cli.record import RunRecord
from webagent_cli.runs import Run
from webagent_cli.settings import trainer_run
from webagent_cli.stack import Stack
from webagent_cli.versions import newest_version

WATCH_SECONDS = 3600.0
ENDED = {trainer_pb2.RUN_STATE_SUCCEEDED, trainer_pb2.RUN_STATE_FAILED, trainer_pb2.RUN_STATE_STOPPED}
PHASES = {"bc": trainer_pb2.RUN_PHASE_BC, "rl": trainer_pb2.RUN_PHASE_RL}
GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED}


class TrainerRun:
    """One run at the trainer."""

    def __init__(
        self, clients: Clients, run: Run, config: LoopConfig, stack: Stack, record: RunRecord, display: Display
    ) -> None:
        self._trainer = clients.trainer
        self._run = run
        self._config = config
        self._stack = stack
        self._record = record
        self._display = display

    async def run_until_paused(self) -> None:
        """Clones; returns when the trainer has paused after it."""
        if self._record.phase("bc").done:
            return
        status = await self._until("bc", {trainer_pb2.RUN_STATE_PAUSED, trainer_pb2.RUN_STATE_SUCCEEDED})
        self._record.versions["bc"] = status.policy_version or newest_version(self._run)

    async def run_until_over(self) -> None:
        """Reinforces; returns when the run has succeeded."""
        if self._record.phase("rl").done:
            return
        status = await self._until("rl", {trainer_pb2.RUN_STATE_SUCCEEDED})
        self._record.versions["rl"] = status.policy_version or newest_version(self._run)

    async def _until(self, phase: str, wanted: set["trainer_pb2.RunState.ValueType"]) -> trainer_pb2.RunStatus:
        with self._display.phase(phase, 0) as view:
            while True:
                await self._stack.until_ready("trainer")
                try:
                    await self._start(resume=phase == "rl")
                    status = await self._watch(phase, wanted, view)
                except grpc.aio.AioRpcError as error:
                    if error.code() not in GONE:
                        raise from_rpc(error) from error
                    continue
                if status is not None:
                    return status

    async def _start(self, *, resume: bool) -> None:
        """Starts the run or finds it running; in the RL phase it also ends the pause that follows cloning."""
        values = trainer_run(self._run, self._config)
        request = trainer_pb2.StartRunRequest(run_id=self._run.id, config_yaml=yaml.safe_dump(values, sort_keys=False))
        answer = await self._trainer.StartRun(request, timeout=CALL_SECONDS)
        if resume and answer.status.state not in ENDED:
            await self._trainer.ResumeRun(trainer_pb2.ResumeRunRequest(run_id=self._run.id), timeout=CALL_SECONDS)

    async def _watch(
        self, phase: str, wanted: set["trainer_pb2.RunState.ValueType"], view: PhaseView
    ) -> trainer_pb2.RunStatus | None:
        """Follows the run's status; None if the stream ended before the run got where it should."""
        request = trainer_pb2.WatchRunRequest(run_id=self._run.id)
        async for event in self._trainer.WatchRun(request, timeout=WATCH_SECONDS):
            status = event.status
            if status.phase == PHASES[phase]:
                view.advance(_shown(dict(status.metrics)), done=status.iteration, total=status.iterations)
            if status.state in wanted:
                return status
            if status.state in ENDED:
                self._fail(status)
        return None

    def _fail(self, status: trainer_pb2.RunStatus) -> NoReturn:
        state = trainer_pb2.RunState.Name(status.state).removeprefix("RUN_STATE_").lower()
        log = self._run.log("trainer")
        raise RunError(f"training {state}: {status.reason} {status.detail}\n{log_tail(log)}".rstrip())


def _shown(metrics: dict[str, float]) -> dict[str, str]:
    """The numbers worth a look while it runs."""
    names = {
        "reward_mean": "reward",
        "loss": "loss",
        "ratio_mean": "ratio",
        "episodes_per_second": "episodes/s",
        "tokens_per_second": "tokens/s",
    }
    return {short: f"{metrics[name]:.3g}" for name, short in names.items() if name in metrics}
