"""The ledger as the command reads it: the counts of the trainer's own file, and they add up."""

from pathlib import Path

import pytest
from webagent_cli.errors import RunError
from webagent_cli.ledger import check_sums, ledger, read_counts
from webagent_cli.runs import Run
from webagent_trainer.ledger import Entry, Ledger


def entry(number: int) -> Entry:
    return Entry(
        episode_id=f"e{number}",
        group_id="g",
        iteration=0,
        suite="miniwob",
        task_id="click-button",
        seed=number,
        min_version=0,
        deadline=0.0,
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Six dispatched: trained, no variance, unused, invalid, expired, open; and one outcome that came late."""
    run = Run(tmp_path / "counted")
    run.path.mkdir()
    book = Ledger(run.ledger)
    book.enter(entry(number) for number in range(6))
    for number in range(3):
        book.settle(f"e{number}", "SCORED", reward=1.0)
    book.settle("e3", "INVALID", reason="BROWSER_CRASHED")
    book.settle("e4", "EXPIRED")
    book.settle("e4", "SCORED", reward=0.0)
    book.use(["e0"], "TRAINED")
    book.use(["e1"], "NO_VARIANCE")
    return run


def test_the_counts_are_the_trainers_own(run: Run) -> None:
    counts = read_counts(run)
    assert counts == Ledger(run.ledger).counts()
    assert counts["dispatched"] == 6
    assert counts["late"] == 1
    check_sums(counts)


def test_the_printed_ledger_names_every_count(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (run.path / "config.yaml").touch()
    ledger("counted", runs=run.path.parent)
    printed = capsys.readouterr().out
    for name in ("dispatched", "open", "scored", "trained", "no variance", "invalid", "expired", "dead", "late"):
        assert name in printed


def test_counts_that_do_not_add_up_are_an_error(run: Run) -> None:
    counts = read_counts(run)
    counts["scored"] += 1
    with pytest.raises(RunError, match="does not add up"):
        check_sums(counts)


def test_a_run_that_dispatched_nothing_has_only_zeros(tmp_path: Path) -> None:
    assert set(read_counts(Run(tmp_path)).values()) == {0}


def test_a_ledger_that_the_trainer_is_just_making_has_only_zeros(tmp_path: Path) -> None:
    run = Run(tmp_path / "begun")
    run.path.mkdir()
    run.ledger.touch()
    assert set(read_counts(run).values()) == {0}
