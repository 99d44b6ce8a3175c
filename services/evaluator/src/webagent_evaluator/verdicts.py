"""What every dialect shares: a decision, and the error that says that there is none.

Whatever keeps a rule from being decided is a NoVerdictError with a stable reason and makes the verdict INVALID; it is
never a failure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One decision with the evidence it was made on."""

    kind: str
    passed: bool
    evidence_json: str
    explanation: str


class NoVerdictError(Exception):
    """No verdict can be reached; `reason` is stable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def malformed(message: str) -> NoVerdictError:
    """The rule itself cannot be applied."""
    return NoVerdictError("RULE_MALFORMED", message)
