"""TrainerService: converts messages, and leaves the rest to the supervisor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import timestamp_pb2
from webagent.trainer.v1 import trainer_pb2, trainer_pb2_grpc
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError

from webagent_trainer.board import State, Status
from webagent_trainer.config import parse_run
from webagent_trainer.supervisor import StartedRun, Supervisor

SERVICE = "webagent.trainer.v1.TrainerService"

_STATES = {
    State.PENDING: trainer_pb2.RUN_STATE_PENDING,
    State.RUNNING: trainer_pb2.RUN_STATE_RUNNING,
    State.PAUSED: trainer_pb2.RUN_STATE_PAUSED,
    State.SUCCEEDED: trainer_pb2.RUN_STATE_SUCCEEDED,
    State.FAILED: trainer_pb2.RUN_STATE_FAILED,
    State.STOPPED: trainer_pb2.RUN_STATE_STOPPED,
}
_PHASES = {
    "": trainer_pb2.RUN_PHASE_UNSPECIFIED,
    "bc": trainer_pb2.RUN_PHASE_BC,
    "rl": trainer_pb2.RUN_PHASE_RL,
}

Context = grpc.aio.ServicerContext[Any, Any]


class TrainerServicer(trainer_pb2_grpc.TrainerServiceServicer):
    """The contract's RPCs."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def StartRun(self, request: trainer_pb2.StartRunRequest, context: Context) -> trainer_pb2.StartRunResponse:
        """See the contract."""
        try:
            config = parse_run(request.config_yaml)
            run = await self._supervisor.start(request.run_id, config)
        except ConfigError as error:
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG", str(error)) from error
        return trainer_pb2.StartRunResponse(status=_status(run, run.board.status))

    async def GetRun(self, request: trainer_pb2.GetRunRequest, context: Context) -> trainer_pb2.GetRunResponse:
        """See the contract."""
        run = self._supervisor.get(request.run_id)
        return trainer_pb2.GetRunResponse(status=_status(run, run.board.status))

    async def WatchRun(
        self, request: trainer_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[trainer_pb2.WatchRunResponse]:
        """See the contract."""
        run = self._supervisor.get(request.run_id)
        async for status in run.board.watch():
            yield trainer_pb2.WatchRunResponse(status=_status(run, status))

    async def PauseRun(self, request: trainer_pb2.PauseRunRequest, context: Context) -> trainer_pb2.PauseRunResponse:
        """See the contract."""
        run = self._going(request.run_id)
        run.board.ask_pause()
        return trainer_pb2.PauseRunResponse(status=_status(run, run.board.status))

    async def ResumeRun(self, request: trainer_pb2.ResumeRunRequest, context: Context) -> trainer_pb2.ResumeRunResponse:
        """See the contract."""
        run = self._going(request.run_id)
        run.board.ask_resume()
        return trainer_pb2.ResumeRunResponse(status=_status(run, run.board.status))

    async def StopRun(self, request: trainer_pb2.StopRunRequest, context: Context) -> trainer_pb2.StopRunResponse:
        """See the contract."""
        run = self._supervisor.get(request.run_id)
        run.board.ask_stop()
        return trainer_pb2.StopRunResponse(status=_status(run, run.board.status))

    async def ListPolicyVersions(
        self, request: trainer_pb2.ListPolicyVersionsRequest, context: Context
    ) -> trainer_pb2.ListPolicyVersionsResponse:
        """See the contract."""
        versions = await self._supervisor.versions(request.run_id)
        return trainer_pb2.ListPolicyVersionsResponse(versions=versions)

    def _going(self, run_id: str) -> StartedRun:
        run = self._supervisor.get(run_id)
        state = run.board.status.state
        if state.over:
            message = f"run {run_id!r} is over: {state.value}"
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "RUN_OVER", message)
        return run


def _status(run: StartedRun, status: Status) -> trainer_pb2.RunStatus:
    updated = timestamp_pb2.Timestamp()
    updated.FromDatetime(status.updated_at)
    counts = run.books.ledger.counts() if run.books is not None else {}
    return trainer_pb2.RunStatus(
        run_id=status.run_id,
        state=_STATES[status.state],
        phase=_PHASES[status.phase],
        iteration=status.iteration,
        iterations=status.iterations,
        policy_version=status.version,
        metrics=status.metrics,
        ledger=trainer_pb2.LedgerCounts(**counts),
        reason=status.reason,
        detail=status.detail,
        updated_at=updated,
    )
