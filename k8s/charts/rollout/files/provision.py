# ruff: noqa: D103, T201
"""Makes the streams and consumers of the queue, or updates them. Safe to run again and again."""

import asyncio
import json
import os
import time

from webagent_runtime.config import QueueConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.queue import Queue


async def main():
    settings = json.loads(os.environ["QUEUE"])
    if "QUEUE_URL" in os.environ:
        settings["url"] = os.environ["QUEUE_URL"]
    config = QueueConfig.model_validate(settings)
    end = time.monotonic() + float(os.environ.get("SECONDS", "300"))
    while True:
        try:
            queue = await Queue.connect(config, name="provision")
            break
        except ServiceError as error:
            if time.monotonic() > end:
                raise
            print(error, flush=True)
            await asyncio.sleep(2)
    try:
        await queue.ensure()
    finally:
        await queue.close()
    print("the queue is ready")


asyncio.run(main())
