"""Which faults are waited out, and for how long.

A service that answers "not now" (no capacity, a site that is taken or being reset, draining, weights not there yet) is
asked again as it advises, for as long as the caller's own time bound lets us: to be full is no fault. A service that is
down is asked again for `outage_seconds`, for a restarted one comes back; every call made this way is idempotent or
leaves nothing behind. Any other error passes at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from grpc import StatusCode
from webagent_runtime.errors import ServiceError

T = TypeVar("T")

NOT_NOW = frozenset({"AT_CAPACITY", "SITE_BUSY", "DRAINING", "QUEUE_FULL", "VERSION_NOT_READY"})
DOWN = frozenset({StatusCode.UNAVAILABLE, StatusCode.CANCELLED})
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


async def persist(
    call: Callable[[], Awaitable[T]],
    *,
    outage_seconds: float,
    on_refusal: Callable[[ServiceError], Awaitable[None]] | None = None,
) -> T:
    """Repeats `call` while another attempt may mend its error; `on_refusal` may turn to another replica first."""
    now = asyncio.get_running_loop().time
    down_since: float | None = None
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except ServiceError as error:
            if error.reason in NOT_NOW:
                down_since = None
            elif error.code in DOWN:
                down_since = now() if down_since is None else down_since
                if now() - down_since >= outage_seconds:
                    raise
            else:
                raise
            if on_refusal is not None:
                await on_refusal(error)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            advised = error.retry_after or pause
        # Callers that were refused together must not come back together.
        await asyncio.sleep(advised * random.uniform(0.5, 1.0))  # noqa: S311
