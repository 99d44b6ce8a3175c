"""The memory of this process and of everything below it, sampled."""

import asyncio

import psutil

SAMPLE_SECONDS = 2.0


def tree_rss() -> int:
    """Resident bytes of this process and all its descendants; pages that they share count once for each."""
    me = psutil.Process()
    total = 0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


class MemoryWatch:
    """Keeps the largest sample."""

    def __init__(self) -> None:
        self.peak = 0

    async def watch(self) -> None:
        """Samples until it is cancelled."""
        while True:
            self.peak = max(self.peak, await asyncio.to_thread(tree_rss))
            await asyncio.sleep(SAMPLE_SECONDS)
