"""Rows are the tokens that were sampled, and what cannot be trusted is refused with a reason."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent.inference.v1 import inference_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_trainer.config import SamplingConfig
from webagent_trainer.rows import Provenance, RefusedError, demonstration_rows, sampled_episode
from webagent_trainer.testing import IDENTITY, VOCABULARY, make_demonstration, make_turn

PROVENANCE = Provenance(IDENTITY, SamplingConfig(), VOCABULARY, newest_version=5)


def episode(*turns: trajectory_pb2.Turn) -> trajectory_pb2.Trajectory:
    trajectory = trajectory_pb2.Trajectory(
        status=trajectory_pb2.EPISODE_STATUS_SCORED,
        reward=1.0,
        turns=turns or (make_turn([1, 5], [6, 7], [-0.5, -1.0], 3),),
    )
    trajectory.episode.episode_id = "e"
    return trajectory


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8),
            st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_each_turn_is_one_row_of_exactly_its_tokens(turns: list[tuple[list[int], list[int]]]) -> None:
    made = episode(*(make_turn(prompt, reply, [-1.0] * len(reply), 2) for prompt, reply in turns))
    found = sampled_episode(made, PROVENANCE)
    assert [(list(row.context), list(row.reply)) for row in found.rows] == turns
    assert found.turn_lengths == tuple(len(reply) for _, reply in turns)
    assert all(set(row.versions) == {2} for row in found.rows)


def test_a_turn_without_tokens_counts_as_a_turn_but_makes_no_row() -> None:
    found = sampled_episode(episode(make_turn([1], [5], [-1.0]), make_turn([1, 2], [], [])), PROVENANCE)
    assert len(found.rows) == 1
    assert found.turn_lengths == (1, 0)


def test_a_reply_over_two_versions_knows_the_version_of_each_token() -> None:
    turn = make_turn([1], [5, 6, 7], [-1.0] * 3)
    del turn.spans[:]
    turn.spans.add(start=0, end=2, weights_version=3)
    turn.spans.add(start=2, end=3, weights_version=4)
    found = sampled_episode(episode(turn), PROVENANCE)
    assert found.rows[0].versions == (3, 3, 4)
    assert found.oldest_version == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda turn: turn.model.MergeFrom(inference_pb2.ModelIdentity(template_hash="other")), "OTHER_MODEL"),
        (lambda turn: setattr(turn.sampling, "temperature", 0.7), "OTHER_SAMPLING"),
        (lambda turn: setattr(turn.sampling, "top_p", 0.9), "OTHER_SAMPLING"),
        (lambda turn: setattr(turn, "logprob_kind", inference_pb2.LOGPROB_KIND_UNSPECIFIED), "OTHER_LOGPROBS"),
        (lambda turn: turn.logprobs.append(-1.0), "LENGTHS_DIFFER"),
        (lambda turn: turn.logprobs.__setitem__(0, float("nan")), "BAD_LOGPROBS"),
        (lambda turn: setattr(turn.spans[0], "end", 1), "SPANS_BROKEN"),
        (lambda turn: turn.spans.add(start=1, end=3), "SPANS_BROKEN"),
        (lambda turn: setattr(turn.spans[0], "weights_version", 6), "UNKNOWN_VERSION"),
        (lambda turn: turn.reply_token_ids.__setitem__(0, VOCABULARY), "UNKNOWN_TOKEN"),
        (lambda turn: turn.prompt_token_ids.__delitem__(slice(None)), "NO_PROMPT"),
    ],
)
def test_an_episode_of_doubtful_origin_is_refused(change: Callable[[trajectory_pb2.Turn], object], reason: str) -> None:
    made = episode()
    change(made.turns[0])
    with pytest.raises(RefusedError) as refused:
        sampled_episode(made, PROVENANCE)
    assert refused.value.reason == reason


def test_an_episode_without_tokens_is_refused() -> None:
    with pytest.raises(RefusedError, match="NO_TOKENS"):
        sampled_episode(episode(make_turn([1], [], [])), PROVENANCE)


def test_raw_and_processed_log_probabilities_are_the_same_at_temperature_1_only() -> None:
    made = episode()
    made.turns[0].logprob_kind = inference_pb2.LOGPROB_KIND_PROCESSED
    assert sampled_episode(made, PROVENANCE).rows
    tempered = SamplingConfig(temperature=0.7, logprobs="processed")
    made.turns[0].sampling.temperature = 0.7
    made.turns[0].logprob_kind = inference_pb2.LOGPROB_KIND_RAW
    with pytest.raises(RefusedError, match="OTHER_LOGPROBS"):
        sampled_episode(made, Provenance(IDENTITY, tempered, VOCABULARY, 5))


def test_only_successful_demonstrations_have_rows() -> None:
    assert len(demonstration_rows(make_demonstration([1, 2], [3, 4]), vocabulary=VOCABULARY)) == 1
    assert demonstration_rows(make_demonstration([1, 2], [3], success=False), vocabulary=VOCABULARY) == []
