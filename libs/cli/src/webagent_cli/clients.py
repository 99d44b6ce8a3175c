"""Channels from the command to the services of a stack, opened once and closed together."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from webagent.env.v1 import env_pb2_grpc
from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent.inference.v1 import inference_pb2_grpc
from webagent.rollout.v1 import rollout_pb2_grpc
from webagent.trainer.v1 import trainer_pb2_grpc
from webagent_runtime.client import open_channel

from webagent_cli.stack import Addresses

CALL_SECONDS = 30.0


class Clients:
    """One stub for each service."""

    def __init__(self, addresses: Addresses) -> None:
        self._channels: list[Any] = []

        def channel(service: str) -> Any:
            opened = open_channel(addresses.of(service))
            self._channels.append(opened)
            return opened

        self.env: env_pb2_grpc.EnvironmentServiceAsyncStub = env_pb2_grpc.EnvironmentServiceStub(channel("env"))
        self.inference: inference_pb2_grpc.InferenceServiceAsyncStub = inference_pb2_grpc.InferenceServiceStub(
            channel("inference")
        )
        self.evaluator: evaluator_pb2_grpc.EvaluatorServiceAsyncStub = evaluator_pb2_grpc.EvaluatorServiceStub(
            channel("evaluator")
        )
        self.rollout: rollout_pb2_grpc.RolloutServiceAsyncStub = rollout_pb2_grpc.RolloutServiceStub(channel("rollout"))
        self.trainer: trainer_pb2_grpc.TrainerServiceAsyncStub = trainer_pb2_grpc.TrainerServiceStub(channel("trainer"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()
