"""The ranks of one run: rank 0 decides, the others do as told.

Each method of `Crew` runs the method of that name of every rank's learner; inside it the ranks meet in collectives.
Between calls the other ranks wait on the rendezvous store, outside any collective, so a run may idle for as long as it
likes. A rank that fails ends its process, and torchrun then ends the others.
"""

from __future__ import annotations

import datetime
import math
import os
import pickle
from collections.abc import Sequence
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from webagent_trainer.batches import LearningRow
from webagent_trainer.canary import Continuation
from webagent_trainer.config import DeepSpeedConfig, OptimizerConfig
from webagent_trainer.errors import RunFailedError
from webagent_trainer.learner import Learner, Objective, StepReport

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL = datetime.timedelta(seconds=60)
_BEGIN = "begin"
_LEAVE = "leave"
# DeepSpeed would compile it when it starts; gloo serves as well and needs no compiler.
_COMPILED_COLLECTIVES = "deepspeed_shm_comm"


class Crew:
    """All ranks' learners behind one call each. For rank 0."""

    def __init__(self) -> None:
        self._learner: Learner | None = None
        self._orders = _Orders()

    def begin(self, config: DeepSpeedConfig) -> None:
        """Gives every rank a learner for a new run."""
        self._orders.give(_BEGIN, (config,))
        self._learner = Learner(config)

    def open(self, model: str, reference: str | None, optimizer: OptimizerConfig, temperature: float) -> None:
        """See Learner."""
        self._call("open", model, reference, optimizer, temperature)

    def close(self) -> None:
        """See Learner."""
        self._call("close")

    def logprobs(self, rows: Sequence[LearningRow], *, reference: bool = False) -> list[tuple[float, ...]]:
        """See Learner."""
        values: list[tuple[float, ...]] = self._call("logprobs", rows, reference)
        return values

    def states(self, rows: Sequence[LearningRow]) -> Tensor:
        """See Learner."""
        values: Tensor = self._call("states", rows)
        return values

    def learn(self, rows: Sequence[LearningRow], objective: Objective, learning_rate: float) -> StepReport:
        """See Learner. DIVERGED: the gradient is not finite; nor are the weights since, so nothing is kept of them."""
        report: StepReport = self._call("learn", rows, objective, learning_rate)
        if not math.isfinite(report.gradient_norm):
            detail = f"a step's gradient has length {report.gradient_norm}; the newest checkpoint is from before it"
            raise RunFailedError("DIVERGED", f"{detail}, so lower the learning rate and resume")
        return report

    def weights(self) -> dict[str, Tensor]:
        """See Learner."""
        tensors: dict[str, Tensor] = self._call("weights")
        return tensors

    def continuations(
        self, prompts: Sequence[Sequence[int]], wanted: int, length: int, margin: float
    ) -> list[Continuation]:
        """See Learner."""
        found: list[Continuation] = self._call("continuations", prompts, wanted, length, margin)
        return found

    def save(self, directory: str) -> None:
        """See Learner."""
        self._call("save", directory)

    def restore(self, directory: str) -> None:
        """See Learner."""
        self._call("restore", directory)

    def dismiss(self) -> None:
        """Lets the other ranks go."""
        self._orders.give(_LEAVE, ())

    def _call(self, method: str, *arguments: Any) -> Any:
        self._orders.give(method, arguments)
        return getattr(self._learner, method)(*arguments)


def follow() -> None:
    """What every other rank does: runs what rank 0 calls, until it is dismissed."""
    orders = _Orders()
    learner: Learner | None = None
    while True:
        method, arguments = orders.take()
        if method == _LEAVE:
            return
        if method == _BEGIN:
            learner = Learner(*arguments)
        else:
            getattr(learner, method)(*arguments)


class _Orders:
    """Numbered calls in the rendezvous store."""

    def __init__(self) -> None:
        self._store = dist.distributed_c10d._get_default_store()  # the one that the ranks met at
        self._number = 0
        self._alone = dist.get_world_size() == 1

    def give(self, method: str, arguments: tuple[Any, ...]) -> None:
        if self._alone:
            return
        # Takes bytes too; its types know only text.
        self._store.set(f"order/{self._number}", pickle.dumps((method, arguments)))  # type: ignore[arg-type]
        # Ranks may lag one order behind, never two: each order is a collective.
        self._store.delete_key(f"order/{self._number - 2}")
        self._number += 1

    def take(self) -> tuple[str, tuple[Any, ...]]:
        key = f"order/{self._number}"
        while not self._wait(key):
            pass
        self._number += 1
        # Written by rank 0 of this very process group.
        order: tuple[str, tuple[Any, ...]] = pickle.loads(self._store.get(key))  # noqa: S301
        return order

    def _wait(self, key: str) -> bool:
        """False: nothing within one poll. A store that is gone, with rank 0, raises."""
        try:
            self._store.wait([key], _POLL)
        except dist.DistStoreError as error:
            if "timeout" in str(error).lower():
                return False
            raise
        return True


def join(timeout_seconds: float) -> int:
    """Joins the process group that torchrun announced, or makes one of this process alone; returns the rank."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing and len(missing) < len(_VARIABLES):
        raise RuntimeError(f"{', '.join(missing)} unset: start every rank with torchrun, or one without any of them")
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    timeout = datetime.timedelta(seconds=timeout_seconds)
    if missing:
        os.environ.update(zip(_VARIABLES, ("0", "1", "0", "127.0.0.1", "0"), strict=True))
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, timeout=timeout)
    if backend == "gloo":
        deepspeed.ops.__compatible_ops__[_COMPILED_COLLECTIVES] = False
    deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, timeout=timeout, verbose=False)
    return dist.get_rank()
