"""The ledger adds up after any sequence of entries, in one process or over several."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from webagent_trainer.ledger import OUTCOMES, USES, Entry, Ledger, LedgerError


def entry(episode_id: str, group_id: str = "g", iteration: int = 0) -> Entry:
    return Entry(episode_id, group_id, iteration, "suite", "task", 1, 0, 100.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def check(counts: dict[str, int]) -> None:
    assert counts["dispatched"] == counts["open"] + sum(counts[name.lower()] for name in OUTCOMES)
    assert counts["scored"] == counts["unused"] + sum(counts[name.lower()] for name in USES)


def test_the_first_outcome_is_final_and_a_later_one_is_late(ledger: Ledger) -> None:
    ledger.enter([entry("e")])
    assert ledger.settle("e", "EXPIRED")
    assert not ledger.settle("e", "SCORED", reward=1.0, archive_offset=0)
    counts = ledger.counts()
    assert (counts["expired"], counts["scored"], counts["late"]) == (1, 0, 1)


def test_an_outcome_redelivered_after_a_lost_acknowledgement_counts_once(ledger: Ledger) -> None:
    ledger.enter([entry("e")])
    ledger.settle("e", "EXPIRED")
    for _ in range(3):
        ledger.settle("e", "SCORED", reward=1.0, archive_offset=0)
    assert ledger.counts()["late"] == 1


def test_a_dead_letter_read_again_by_the_next_trainer_changes_nothing(ledger: Ledger) -> None:
    ledger.enter([entry("e")])
    assert ledger.settle("e", "DEAD")
    assert not ledger.settle("e", "DEAD")
    assert ledger.counts()["late"] == 0


def test_only_scored_episodes_have_a_use_and_only_one(ledger: Ledger) -> None:
    ledger.enter([entry("a"), entry("b")])
    ledger.settle("a", "SCORED", reward=0.0, archive_offset=0)
    ledger.settle("b", "INVALID", reason="BROWSER_CRASHED")
    ledger.use(["a"], "TRAINED")
    for episode in ("a", "b"):
        with pytest.raises(LedgerError, match="is not scored and unused"):
            ledger.use([episode], "SURPLUS")


def test_a_failed_use_leaves_nothing_half_done(ledger: Ledger) -> None:
    ledger.enter([entry("a"), entry("b")])
    ledger.settle("a", "SCORED", reward=0.0, archive_offset=0)
    with pytest.raises(LedgerError):
        ledger.use(["a", "b"], "TRAINED")
    assert ledger.counts()["unused"] == 1


def test_an_unknown_episode_and_a_reward_without_score_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="never dispatched"):
        ledger.settle("nobody", "INVALID")
    ledger.enter([entry("e")])
    with pytest.raises(LedgerError, match="exactly SCORED"):
        ledger.settle("e", "INVALID", reward=0.0)


def test_rewinding_takes_back_the_uses_after_a_position(ledger: Ledger) -> None:
    ledger.enter([entry("a"), entry("b")])
    for episode in "ab":
        ledger.settle(episode, "SCORED", reward=1.0, archive_offset=0)
    ledger.use(["a"], "TRAINED")
    position = ledger.position()
    ledger.use(["b"], "TRAINED")
    assert ledger.rewind(position) == 1
    assert [found.episode_id for found in ledger.unfinished()] == ["b"]
    assert ledger.position() == position


class Bookkeeping(RuleBasedStateMachine):
    """Everything that may happen to episodes, in any order, with restarts in between."""

    episodes = Bundle("episodes")

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "ledger.sqlite"
        self.ledger = Ledger(self.path)
        self.number = 0
        self.final: dict[str, str | None] = {}
        self.used: dict[str, str] = {}
        self.late: set[tuple[str, str]] = set()

    @rule(target=episodes, size=st.integers(1, 4))
    def dispatch(self, size: int) -> object:
        names = [f"e{self.number + index}" for index in range(size)]
        self.number += size
        self.ledger.enter([entry(name) for name in names])
        self.final.update(dict.fromkeys(names))
        return multiple(*names)

    @rule(episode=episodes, outcome=st.sampled_from(OUTCOMES))
    def settle(self, episode: str, outcome: str) -> None:
        reward = 1.0 if outcome == "SCORED" else None
        known = self.final[episode]
        assert self.ledger.settle(episode, outcome, reward=reward) == (known is None)
        if known is None:
            self.final[episode] = outcome
        elif (known, outcome) != ("DEAD", "DEAD"):
            self.late.add((episode, outcome))

    @rule(episode=episodes, use=st.sampled_from(USES))
    def use(self, episode: str, use: str) -> None:
        if self.final[episode] == "SCORED" and episode not in self.used:
            self.ledger.use([episode], use)
            self.used[episode] = use
        else:
            with pytest.raises(LedgerError):
                self.ledger.use([episode], use)

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.path)

    @invariant()
    def adds_up(self) -> None:
        counts = self.ledger.counts()
        check(counts)
        assert counts["dispatched"] == len(self.final)
        assert counts["open"] == sum(outcome is None for outcome in self.final.values())
        assert counts["unused"] == sum(
            outcome == "SCORED" and episode not in self.used for episode, outcome in self.final.items()
        )
        assert counts["late"] == len(self.late)

    def teardown(self) -> None:
        self.ledger.close()
        self.directory.cleanup()


Bookkeeping.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
test_the_ledger_adds_up_whatever_happens = Bookkeeping.TestCase
