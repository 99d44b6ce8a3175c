"""The dialect of pages that compute a reward of their own, as MiniWoB's do.

`collect_native` reads the reward from the session, and `check_native` decides on it without a browser, so a stored
verdict can be judged again from its evidence alone.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

from webagent_evaluator.verdicts import Check, NoVerdictError

MAX_EVIDENCE_BYTES: Final = 64 * 1024

ReadJavascript = Callable[[str], Awaitable[tuple[str, str]]]
"""Evaluates JavaScript in the agent's page; the value as JSON, and the page's address."""


@dataclass(frozen=True)
class NativeRule:
    """The page computes a reward of its own; success is being done with at least the threshold."""

    reward_javascript: str
    success_threshold: float


async def collect_native(rule: NativeRule, read: ReadJavascript) -> str:
    """Reads the page's own reward as evidence."""
    value_json, url = await read(rule.reward_javascript)
    if len(value_json.encode()) > MAX_EVIDENCE_BYTES:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"the page's reward is longer than {MAX_EVIDENCE_BYTES} bytes")
    return json.dumps({"value": _parse(value_json), "url": url}, sort_keys=True)


def check_native(rule: NativeRule, evidence_json: str) -> Check:
    """Decides on the page's own reward."""
    done, reward = _done_and_reward(evidence_json)
    passed = done and reward >= rule.success_threshold
    if not done:
        explanation = "The page says that the task is not done."
    else:
        relation = "at least" if passed else "below"
        explanation = f"The page's reward {reward:g} is {relation} the threshold {rule.success_threshold:g}."
    return Check("native", passed, evidence_json, explanation)


def _done_and_reward(evidence_json: str) -> tuple[bool, float]:
    match _parse(evidence_json):
        case {"value": {"done": bool(done), "reward": float(reward)}} if isfinite(reward):
            return done, reward
    raise NoVerdictError("EVIDENCE_MALFORMED", 'the page\'s reward is not {"done": boolean, "reward": finite number}')


def _parse(text: str) -> object:
    """Strict JSON with every number as a float: pages are hostile, and a Python integer has no largest value."""
    try:
        return json.loads(text, parse_int=float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"what the page gave as its reward is not JSON: {error}") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
