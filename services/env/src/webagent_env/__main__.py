"""The env service as a process: `webagent-env [--config FILE] [--set section.key=value]...`."""

from __future__ import annotations

from webagent.env.v1 import env_pb2_grpc, probe_pb2_grpc
from webagent_runtime.server import Server
from webagent_runtime.service import run_service

from webagent_env.config import EnvConfig
from webagent_env.leftovers import InstanceDirectory, clean_up
from webagent_env.pool import SessionPool
from webagent_env.probe_servicer import ProbeServicer
from webagent_env.servicer import VERSION, EnvironmentServicer
from webagent_env.suites import make_suites


async def serve(config: EnvConfig) -> None:
    """Serves until it is asked to stop, then drains; leaves no process and no directory behind."""
    clean_up(config.state_directory)
    directory = InstanceDirectory(config.state_directory)
    pool = SessionPool(config, directory, make_suites(config.suites))
    server = Server(config.server, name="env", version=VERSION)
    server.add(
        env_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        EnvironmentServicer(pool, config.sessions, lambda: server.address),
        service="webagent.env.v1.EnvironmentService",
        scope="env",
    )
    server.add(
        probe_pb2_grpc.add_ProbeServiceServicer_to_server,
        ProbeServicer(pool, config.sessions.probe_timeout_seconds),
        service="webagent.env.v1.ProbeService",
        scope="env.probe",
    )
    try:
        # The port first: another service on it is noticed before a browser is started.
        await server.start()
        try:
            await pool.start()
        except BaseException:
            await server.stop(0)
            raise
        server.set_ready(True)
        await server.run(pool.drain)
    finally:
        await pool.stop()
        directory.remove()


def main() -> None:
    """Console entry."""
    run_service(EnvConfig, serve, env_prefix="WEBAGENT_ENV", name="env")


if __name__ == "__main__":
    main()
