"""Every rank gets equally many packs, every row is learned from once, and whole groups make minibatches."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from webagent_trainer.batches import LearningRow, minibatches, share_out
from webagent_trainer.chance import seeded


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 40))
def test_ranks_run_equally_many_passes_and_fillers_weigh_nothing(lengths: list[int], ranks: int, budget: int) -> None:
    rows = [LearningRow(tuple(range(3, 3 + n)), (index + 3,), weight=1.0 + index) for index, n in enumerate(lengths)]
    shares = share_out(rows, budget=budget, ranks=ranks)
    assert len({len(share) for share in shares}) == 1
    weighted = Counter(row.weight for share in shares for _, members in share for row in members if row.weight)
    assert weighted == Counter(row.weight for row in rows)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.none() | st.integers(1, 40), st.integers(0, 9))
def test_minibatches_are_whole_groups_and_hold_each_once(sizes: list[int], rows: int | None, seed: int) -> None:
    chosen = list(minibatches(sizes, rows, seeded(seed)))
    assert sorted(index for batch in chosen for index in batch) == list(range(len(sizes)))
    if rows is None:
        assert len(chosen) == 1
    else:
        assert all(sum(sizes[index] for index in batch) >= rows for batch in chosen[:-1])
