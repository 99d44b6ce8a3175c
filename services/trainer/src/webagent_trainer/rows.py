"""Training rows, made of Trajectory messages and nothing else.

One row per turn: the very prompt that was sampled from is the context, the sampled reply the target. An episode whose
tokens cannot be trusted to come from the policy as it is trained raises RefusedError with a stable reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from webagent.evaluator.v1 import evaluator_pb2
from webagent.inference.v1 import inference_pb2
from webagent.trajectory.v1 import trajectory_pb2

from webagent_trainer.config import SamplingConfig

_KINDS = {"raw": inference_pb2.LOGPROB_KIND_RAW, "processed": inference_pb2.LOGPROB_KIND_PROCESSED}


class RefusedError(Exception):
    """An episode's provenance does not match; `reason` is stable."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Row:
    """One turn: tokens of the prompt, tokens of the reply, and where the reply came from."""

    context: tuple[int, ...]
    reply: tuple[int, ...]
    logprobs: tuple[float, ...]  # of the sampler; empty for demonstrations
    versions: tuple[int, ...]  # of the weights, per reply token; empty for demonstrations


@dataclass(frozen=True, slots=True)
class Episode:
    """The turns of a scored episode that sampled at least one token, and how many turns there were."""

    episode_id: str
    reward: float
    rows: tuple[Row, ...]
    turn_lengths: tuple[int, ...]

    @property
    def oldest_version(self) -> int:
        """The lowest version that any token was sampled from."""
        return min(version for row in self.rows for version in row.versions)


@dataclass(frozen=True, slots=True)
class Provenance:
    """What every turn of a run must agree with."""

    identity: inference_pb2.ModelIdentity
    sampling: SamplingConfig
    vocabulary: int
    newest_version: int


def identity_of(trajectory: trajectory_pb2.Trajectory) -> inference_pb2.ModelIdentity | None:
    """Model, tokenizer and template that the episode's first turn names."""
    return trajectory.turns[0].model if trajectory.turns else None


def sampled_episode(trajectory: trajectory_pb2.Trajectory, provenance: Provenance) -> Episode:
    """The rows of a SCORED episode, or RefusedError."""
    rows = []
    for number, turn in enumerate(trajectory.turns):
        _check_turn(turn, number, provenance)
        if turn.reply_token_ids:
            rows.append(
                Row(
                    context=tuple(turn.prompt_token_ids),
                    reply=tuple(turn.reply_token_ids),
                    logprobs=tuple(turn.logprobs),
                    versions=_versions(turn, number),
                )
            )
    if not rows:
        raise RefusedError("NO_TOKENS", "the episode sampled no token")
    lengths = tuple(len(turn.reply_token_ids) for turn in trajectory.turns)
    return Episode(trajectory.episode.episode_id, trajectory.reward, tuple(rows), lengths)


def demonstration_rows(trajectory: trajectory_pb2.Trajectory, *, vocabulary: int) -> list[Row]:
    """The rows of a demonstration; none unless it was judged successful."""
    if trajectory.verdict.outcome != evaluator_pb2.OUTCOME_SUCCESS:
        return []
    rows = []
    for number, turn in enumerate(trajectory.turns):
        _check_tokens(turn, number, vocabulary)
        if turn.reply_token_ids:
            rows.append(Row(tuple(turn.prompt_token_ids), tuple(turn.reply_token_ids), (), ()))
    return rows


def _check_turn(turn: trajectory_pb2.Turn, number: int, provenance: Provenance) -> None:
    _check_tokens(turn, number, provenance.vocabulary)
    if turn.model != provenance.identity:
        raise RefusedError(
            "OTHER_MODEL", f"turn {number} comes from {_name(turn.model)}, the run from {_name(provenance.identity)}"
        )
    sampling = provenance.sampling
    if not math.isclose(turn.sampling.temperature, sampling.temperature, rel_tol=1e-6):
        raise RefusedError("OTHER_SAMPLING", f"turn {number} has temperature {turn.sampling.temperature:g}")
    if turn.sampling.top_p not in {0.0, 1.0}:
        raise RefusedError("OTHER_SAMPLING", f"turn {number} has top_p {turn.sampling.top_p:g}")
    if turn.logprob_kind != _KINDS[sampling.logprobs] and not (
        sampling.temperature == 1.0 and turn.logprob_kind in _KINDS.values()
    ):
        raise RefusedError("OTHER_LOGPROBS", f"turn {number} has log-probabilities of kind {turn.logprob_kind}")
    if len(turn.logprobs) != len(turn.reply_token_ids):
        raise RefusedError(
            "LENGTHS_DIFFER",
            f"turn {number}: {len(turn.reply_token_ids)} tokens, {len(turn.logprobs)} log-probabilities",
        )
    if not all(math.isfinite(value) and value <= 1e-3 for value in turn.logprobs):
        raise RefusedError("BAD_LOGPROBS", f"turn {number} has a log-probability that is none")
    versions = _versions(turn, number)
    if versions and max(versions) > provenance.newest_version:
        raise RefusedError("UNKNOWN_VERSION", f"turn {number} names version {max(versions)}, which was never published")


def _check_tokens(turn: trajectory_pb2.Turn, number: int, vocabulary: int) -> None:
    if not turn.prompt_token_ids:
        raise RefusedError("NO_PROMPT", f"turn {number} has no prompt")
    if max((*turn.prompt_token_ids, *turn.reply_token_ids)) >= vocabulary:
        raise RefusedError("UNKNOWN_TOKEN", f"turn {number} has a token beyond the vocabulary of {vocabulary}")


def _versions(turn: trajectory_pb2.Turn, number: int) -> tuple[int, ...]:
    """The version of each reply token; the spans must cover the reply exactly, in order."""
    versions: list[int] = []
    for span in turn.spans:
        if span.start != len(versions) or span.end <= span.start:
            raise RefusedError(
                "SPANS_BROKEN", f"turn {number}: span {span.start}..{span.end} follows {len(versions)} tokens"
            )
        versions.extend([span.weights_version] * (span.end - span.start))
    if len(versions) != len(turn.reply_token_ids):
        raise RefusedError(
            "SPANS_BROKEN", f"turn {number}: spans cover {len(versions)} of {len(turn.reply_token_ids)} tokens"
        )
    return tuple(versions)


def _name(identity: inference_pb2.ModelIdentity) -> str:
    return f"{identity.model_id} (tokenizer {identity.tokenizer_hash[:8]}, template {identity.template_hash[:8]})"
