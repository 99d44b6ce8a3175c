"""One replica, wired: its servers, the loaded model, and the bucket that it follows.

Ports are bound first, so that a taken port is said at once and health answers while the model loads. The replica is
ready when it serves the newest version there is.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

import structlog
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.server import Server

from webagent_inference.config import InferenceConfig
from webagent_inference.core import Core, Slot
from webagent_inference.servicer import InferenceAdminServicer, InferenceServicer

log = structlog.get_logger()

STOP_SECONDS = 2.0
# An engine that dies more often than engine.restarts within this is not started again in place.
DEATHS_SECONDS = 3600.0


@dataclass(frozen=True)
class Replica:
    """A replica that serves."""

    name: str
    core: Core
    server: Server
    admin: Server
    face_url: str
    following: list["asyncio.Task[None]"]

    def set_ready(self, ready: bool) -> None:
        """Sets the health of both servers."""
        self.server.set_ready(ready)
        self.admin.set_ready(ready)

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT; raises when the policy cannot be served any more."""
        running = asyncio.create_task(self.server.run(self._drain))
        keeping = asyncio.create_task(self._keep_alive())
        try:
            await asyncio.wait({running, keeping, *self.following}, return_when=asyncio.FIRST_COMPLETED)
            for task in (running, *self.following):
                if task.done():
                    return task.result()
            # Calls in flight get their answer (ENGINE_DEAD) before the process ends.
            await self.server.stop(STOP_SECONDS)
            raise RuntimeError(f"the policy cannot be served any more: {keeping.result()}")
        finally:
            running.cancel()
            keeping.cancel()

    async def _keep_alive(self) -> str:
        """Starts the engine again when it dies, until it dies too often; then the cause."""
        loop = asyncio.get_running_loop()
        deaths: list[float] = []
        while True:
            cause = await self.core.policy.failed()
            self.set_ready(False)
            now = loop.time()
            deaths = [*(death for death in deaths if now - death < DEATHS_SECONDS), now]
            log.error("engine_died", cause=cause, deaths=len(deaths))
            if len(deaths) > self.core.config.engine.restarts:
                return cause
            try:
                await self.core.restore()
            except Exception as error:
                log.exception("engine_not_restored")
                return f"{cause}; it could not be started again: {error}"
            if not self.core.policy.draining:
                self.set_ready(True)

    async def _drain(self) -> None:
        self.admin.set_ready(False)
        await self.core.policy.drain()
        await self.core.updater.idle()


@asynccontextmanager
async def started(config: InferenceConfig) -> AsyncIterator[Replica]:
    """A ready replica; everything it started is gone after the block."""
    slot = Slot(config.limits.retry_seconds)
    servicer = InferenceServicer(slot, config.limits, backend=config.backend)
    server = Server(config.server, name="inference", version=version("webagent-inference"))
    server.add(
        inference_pb2_grpc.add_InferenceServiceServicer_to_server,
        servicer,
        service="webagent.inference.v1.InferenceService",
        scope="inference",
    )
    admin = Server(config.admin, name="inference-admin", version=version("webagent-inference"))
    admin.add(
        inference_pb2_grpc.add_InferenceAdminServiceServicer_to_server,
        InferenceAdminServicer(slot),
        service="webagent.inference.v1.InferenceAdminService",
        scope="inference.admin",
    )
    async with _listening(server), _listening(admin), _faced(config, slot) as face_url:
        servicer.replica = name = config.replica_name(server.port)
        core = await Core.load(config)
        try:
            slot.fill(core)
            async with _following(config, core, name) as following:
                replica = Replica(name, core, server, admin, face_url, following)
                replica.set_ready(True)
                log.info("ready", replica=name, address=server.address, version=core.policy.version.number)
                yield replica
        finally:
            await core.policy.backend.close()


@asynccontextmanager
async def _listening(server: Server) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop(STOP_SECONDS)


@asynccontextmanager
async def _faced(config: InferenceConfig, slot: Slot) -> AsyncIterator[str]:
    """The OpenAI-compatible face, if there is one; its URL."""
    if config.face is None:
        yield ""
        return
    from webagent_inference.face.server import listening  # noqa: PLC0415 - only where it is served

    async with listening(config.face, slot, config.limits) as url:
        yield url


@asynccontextmanager
async def _following(config: InferenceConfig, core: Core, name: str) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Follows the queue, if there is one; the newest version is served before the block starts."""
    if config.queue is None:
        yield []
        return
    # A replica that works alone needs no queue client installed.
    from webagent_runtime.queue import Queue  # noqa: PLC0415

    from webagent_inference.follower import Follower  # noqa: PLC0415

    queue = await Queue.connect(config.queue, name=f"inference-{name}")
    try:
        await queue.ensure()
        follower = Follower(queue, core.updater, name, config.updates)
        await follower.catch_up()
        task = asyncio.create_task(follower.run())
        try:
            yield [task]
        finally:
            task.cancel()
            await asyncio.wait({task})
    finally:
        await queue.close()
