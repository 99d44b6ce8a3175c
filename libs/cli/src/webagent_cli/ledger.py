"""`webagent ledger RUN`: how every episode of a run ended, read from the trainer's SQLite file.

dispatched = open + scored + invalid + expired + dead
scored     = unused + trained + stale + no_variance + refused + surplus
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table
from webagent_runtime.config import ConfigError

from webagent_cli.errors import RunError
from webagent_cli.runs import Run, find_run

BUSY_SECONDS = 10.0
OUTCOMES = ("open", "scored", "invalid", "expired", "dead")
USES = ("unused", "trained", "stale", "no_variance", "refused", "surplus")


def read_counts(run: Run) -> dict[str, int]:
    """The counts under the names that `LedgerCounts` has in the contract; all 0 before the ledger has tables."""
    counts = dict.fromkeys(("dispatched", *OUTCOMES, *USES, "late"), 0)
    if not run.ledger.is_file():
        return counts
    with closing(sqlite3.connect(f"{run.ledger.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'episodes'").fetchone():
            return counts
        rows = database.execute("SELECT outcome, use, COUNT(*) FROM episodes GROUP BY outcome, use").fetchall()
        counts["late"] = database.execute("SELECT COUNT(*) FROM late").fetchone()[0]
    for outcome, use, number in rows:
        counts["dispatched"] += number
        counts["open" if outcome is None else outcome.lower()] += number
        if outcome == "SCORED":
            counts["unused" if use is None else use.lower()] += number
    return counts


def check_sums(counts: Mapping[str, int]) -> None:
    """Fails if the counts do not add up."""
    outcomes, uses = sum(counts[name] for name in OUTCOMES), sum(counts[name] for name in USES)
    if outcomes != counts["dispatched"] or uses != counts["scored"]:
        raise RunError(
            f"the ledger does not add up: {counts['dispatched']} dispatched but {outcomes} outcomes, "
            f"{counts['scored']} scored but {uses} uses"
        )


def ledger(name: str, *, runs: Path) -> None:
    """Prints the counts."""
    run = find_run(runs, name)
    if not run.ledger.is_file():
        raise ConfigError(f"run {run.id} has no ledger yet: its RL phase has not begun")
    counts = read_counts(run)
    check_sums(counts)
    table = Table("", "episodes", box=None, title=f"ledger of {run.id}", title_justify="left")
    table.add_row("dispatched", str(counts["dispatched"]), style="bold")
    for outcome in OUTCOMES:
        table.add_row(f"  {outcome}", str(counts[outcome]))
        if outcome == "scored":
            for use in USES:
                table.add_row(f"    {use.replace('_', ' ')}", str(counts[use]), style="dim")
    table.add_row("late", str(counts["late"]), style="dim")
    Console().print(table)
    Console().print("adds up: dispatched = open + scored + invalid + expired + dead", highlight=False)
