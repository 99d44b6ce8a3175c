"""Text becomes tokens once: whatever an episode says, exactly the sampled tokens are learned, and nothing else.

Replies are cut into tokens at random, as a sampler may do, and never as a tokenizer would cut the same text again.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent.trajectory.v1 import trajectory_pb2
from webagent_trainer.config import SamplingConfig
from webagent_trainer.packing import pack_rows
from webagent_trainer.released import with_released_contexts
from webagent_trainer.rows import Episode, Provenance, RefusedError, sampled_episode
from webagent_trainer.testing import IDENTITY, make_turn

# Bytes, and above them every pair of bytes: most texts have many spellings.
OPEN, CLOSE, ASSISTANT = 256, 257, 258
PAIRS = 300
VOCABULARY = PAIRS + 65536
STAND_IN = list(b"(page)")


@dataclass(frozen=True)
class Played:
    """An episode, and for each turn the prompt that it was sampled from and its reply."""

    trajectory: trajectory_pb2.Trajectory
    replies: list[list[int]]


def spell(text: str, pairs: list[bool]) -> list[int]:
    data = text.encode()
    tokens, place = [], 0
    while place < len(data):
        if place + 1 < len(data) and pairs[place % len(pairs)]:
            tokens.append(PAIRS + data[place] * 256 + data[place + 1])
            place += 2
        else:
            tokens.append(data[place])
            place += 1
    return tokens


@st.composite
def episodes(draw: st.DrawFn, *, compress: bool = True) -> Played:
    pages = draw(st.lists(st.text(max_size=12), min_size=1, max_size=6))
    texts = draw(st.lists(st.text(min_size=1, max_size=8), min_size=len(pages), max_size=len(pages)))
    pairs = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    replies = [[*spell(text, pairs), CLOSE] for text in texts]
    turns = []
    for newest in range(len(pages)):
        prompt = list(b"system")
        for index in range(newest + 1):
            shown = STAND_IN if compress and index < newest else list(pages[index].encode())
            prompt += [OPEN, *shown, CLOSE, OPEN, ASSISTANT]
            if index < newest:
                prompt += replies[index]
        turns.append(make_turn(prompt, replies[newest], [-1.0] * len(replies[newest])))
    made = trajectory_pb2.Trajectory(status=trajectory_pb2.EPISODE_STATUS_SCORED, reward=1.0, turns=turns)
    return Played(made, replies)


def read(played: Played) -> Episode:
    return sampled_episode(played.trajectory, Provenance(IDENTITY, SamplingConfig(), VOCABULARY, newest_version=0))


def masks(episode: Episode) -> list[tuple[list[int], list[int]]]:
    """For each row, through the packs: its tokens, and 1 where a token is learned."""
    found = []
    for pack in pack_rows(episode.rows, budget=40):
        targets = pack.targets.tolist()
        for row, length in zip(pack.rows, pack.reply_lengths, strict=True):
            learned, targets = targets[:length], targets[length:]
            context = list(episode.rows[row].context)
            found.append((row, [*context, *learned], [0] * len(context) + [1] * length))
    return [(tokens, mask) for _, tokens, mask in sorted(found)]


@given(episodes())
def test_the_mask_is_1_exactly_on_the_tokens_that_were_sampled(played: Played) -> None:
    rows = masks(read(played))
    assert len(rows) == len(played.replies)
    for (tokens, mask), turn, reply in zip(rows, played.trajectory.turns, played.replies, strict=True):
        assert [token for token, flag in zip(tokens, mask, strict=True) if flag] == reply
        assert [token for token, flag in zip(tokens, mask, strict=True) if not flag] == list(turn.prompt_token_ids)


@given(episodes())
def test_rows_are_never_merged_where_a_prompt_does_not_extend_the_one_before(played: Played) -> None:
    contexts = [row.context for row in read(played).rows]
    assert contexts == [tuple(turn.prompt_token_ids) for turn in played.trajectory.turns]


@given(episodes(compress=False))
def test_without_compression_each_prompt_is_the_one_before_its_reply_and_more(played: Played) -> None:
    rows = read(played).rows
    for before, after in pairwise(rows):
        assert after.context[: len(before.context) + len(before.reply)] == (*before.context, *before.reply)


@given(episodes())
def test_the_released_context_has_one_run_of_learned_tokens_per_turn_in_one_sequence(played: Played) -> None:
    episode = with_released_contexts(read(played))
    last = episode.rows[-1]
    sequence = (*last.context, *last.reply)
    mask = [0] * len(sequence)
    for row, reply in zip(episode.rows, played.replies, strict=True):
        start = len(row.context)
        assert sequence[:start] == row.context
        assert list(sequence[start : start + len(reply)]) == list(row.reply) == reply
        assert not any(mask[start : start + len(reply)])
        mask[start : start + len(reply)] = [1] * len(reply)
    assert sum(mask) == sum(map(len, played.replies))
    runs = sum(flag and not before for before, flag in zip([0, *mask], mask, strict=False))
    assert runs == len(played.replies)


def test_a_past_reply_that_was_spelled_anew_is_refused() -> None:
    first = make_turn([OPEN, 5, CLOSE, OPEN, ASSISTANT], [104, 105, CLOSE], [-1.0] * 3)
    again = [OPEN, *STAND_IN, CLOSE, OPEN, ASSISTANT, PAIRS + 104 * 256 + 105, CLOSE, OPEN, 6, CLOSE, OPEN, ASSISTANT]
    made = trajectory_pb2.Trajectory(reward=1.0, turns=[first, make_turn(again, [7], [-1.0])])
    with pytest.raises(RefusedError, match="REPLY_NOT_IN_PROMPT"):
        with_released_contexts(read(Played(made, [])))


def test_a_reply_quoted_by_the_system_text_is_not_taken_for_the_reply() -> None:
    reply = [104, 105, CLOSE]
    opening = [OPEN, ASSISTANT]
    first = make_turn([*reply, OPEN, 5, CLOSE, *opening], reply, [-1.0] * 3)
    second = make_turn([*reply, OPEN, *STAND_IN, CLOSE, *opening, *reply, OPEN, 6, CLOSE, *opening], [7], [-1.0])
    made = trajectory_pb2.Trajectory(reward=1.0, turns=[first, second])
    found = with_released_contexts(read(Played(made, [])))
    assert found.rows[0].context == (*reply, OPEN, *STAND_IN, CLOSE, *opening)
