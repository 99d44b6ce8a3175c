"""What backends share whose weights are somebody else's affair: calls that can be dropped, and nothing to load."""

import asyncio
from pathlib import Path

from webagent_inference.in_flight import InFlight


class FixedWeights:
    """Base of a backend without WEIGHTS; what it waits for goes through `_in_flight`."""

    def __init__(self) -> None:
        self._in_flight = InFlight()

    async def interrupt(self) -> None:
        """See Backend."""
        await self._in_flight.interrupt()

    async def load(self, directory: Path) -> None:
        """See Backend; it lacks WEIGHTS."""

    async def reset_cache(self) -> bool:
        """See Backend. The weights do not change, so no cache need be emptied."""
        return True

    async def died(self) -> str:
        """See Backend. What is away may come back; that is an error of each call."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never
