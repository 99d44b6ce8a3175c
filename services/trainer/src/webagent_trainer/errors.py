"""How a run ends other than well.

RunFailedError   the run cannot go on; `reason` is stable and becomes the run's
RunStoppedError  somebody asked for the end; the run has checkpointed
"""


class RunFailedError(Exception):
    """The run cannot go on."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RunStoppedError(Exception):
    """The run was asked to end, and did in order."""
