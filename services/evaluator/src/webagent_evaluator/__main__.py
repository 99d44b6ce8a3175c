"""Starts the evaluator: `webagent-evaluator [--config FILE] [--set section.key=value]`."""

from __future__ import annotations

from webagent.evaluator.v1 import evaluator_pb2_grpc
from webagent_runtime.server import Server
from webagent_runtime.service import run_service

from webagent_evaluator.config import EvaluatorConfig
from webagent_evaluator.judges import judge_of
from webagent_evaluator.servicer import VERSION, EvaluatorServicer
from webagent_evaluator.sessions import Sessions


async def serve(config: EvaluatorConfig) -> None:
    """Serves until told to stop; evaluations in flight are finished."""
    sessions = Sessions(config.env, config.max_environments)
    server = Server(config.server, name="evaluator", version=VERSION)
    server.add(
        evaluator_pb2_grpc.add_EvaluatorServiceServicer_to_server,
        EvaluatorServicer(sessions, judge_of(config.judge), config.webarena, config.evaluate_timeout_seconds),
        service="webagent.evaluator.v1.EvaluatorService",
        scope="evaluator",
    )
    await server.start()
    server.set_ready(True)
    await server.run(sessions.idle)
    await sessions.close()


def main() -> None:
    """Console entry."""
    run_service(EvaluatorConfig, serve, env_prefix="WEBAGENT_EVALUATOR", name="evaluator")


if __name__ == "__main__":
    main()
