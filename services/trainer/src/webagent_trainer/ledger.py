"""The ledger: how every dispatched episode of a run ended, and what became of it. One SQLite file.

    dispatched = open + SCORED + INVALID + EXPIRED + DEAD
    SCORED     = unused + TRAINED + STALE + NO_VARIANCE + REFUSED + SURPLUS

An episode is entered before it is dispatched. Its first outcome is final; whatever comes later is counted as late and
changes nothing. A scored episode has one use at most. Each entry is on disk when its method returns. Methods may be
called from any thread.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTCOMES = ("SCORED", "INVALID", "EXPIRED", "DEAD")
USES = ("TRAINED", "STALE", "NO_VARIANCE", "REFUSED", "SURPLUS")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS episodes (
    episode_id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    suite TEXT NOT NULL,
    task_id TEXT NOT NULL,
    seed INTEGER NOT NULL,
    min_version INTEGER NOT NULL,
    deadline REAL NOT NULL,
    dispatched_at REAL NOT NULL,
    outcome TEXT CHECK (outcome IN ('SCORED', 'INVALID', 'EXPIRED', 'DEAD')),
    reason TEXT NOT NULL DEFAULT '',
    reward REAL,
    archive_offset INTEGER,
    settled_at REAL,
    use TEXT CHECK (use IN ('TRAINED', 'STALE', 'NO_VARIANCE', 'REFUSED', 'SURPLUS')),
    use_reason TEXT NOT NULL DEFAULT '',
    use_number INTEGER,
    CHECK (use IS NULL OR outcome = 'SCORED')
) STRICT;
CREATE INDEX IF NOT EXISTS episodes_by_group ON episodes (group_id);
CREATE INDEX IF NOT EXISTS episodes_by_use ON episodes (use_number);
CREATE TABLE IF NOT EXISTS late (
    number INTEGER PRIMARY KEY,
    episode_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (episode_id, outcome)
) STRICT;
"""
_ENTRIES = """
SELECT episode_id, group_id, iteration, suite, task_id, seed, min_version, deadline, outcome, archive_offset
FROM episodes
"""


class LedgerError(Exception):
    """An entry that would contradict the ledger."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A dispatched episode."""

    episode_id: str
    group_id: str
    iteration: int
    suite: str
    task_id: str
    seed: int
    min_version: int
    deadline: float
    outcome: str | None = None
    archive_offset: int | None = None


class Ledger:
    """The episodes of one run."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        # In one piece: whoever reads the file meanwhile finds all tables or none.
        self._db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")

    def close(self) -> None:
        """Closes the file. Idempotent."""
        with self._lock:
            self._db.close()

    def enter(self, entries: Iterable[Entry]) -> None:
        """Enters episodes that are about to be dispatched."""
        now = time.time()
        rows = [
            (e.episode_id, e.group_id, e.iteration, e.suite, e.task_id, e.seed, e.min_version, e.deadline, now)
            for e in entries
        ]
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT INTO episodes (episode_id, group_id, iteration, suite, task_id, seed, min_version, deadline,"
                " dispatched_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def check_dispatched(self, episode_id: str) -> None:
        """LedgerError: this run never dispatched the episode."""
        with self._lock:
            known = self._db.execute("SELECT 1 FROM episodes WHERE episode_id = ?", (episode_id,)).fetchone()
        if known is None:
            raise LedgerError(f"{episode_id} was never dispatched by this run")

    def settle(
        self,
        episode_id: str,
        outcome: str,
        *,
        reason: str = "",
        reward: float | None = None,
        archive_offset: int | None = None,
    ) -> bool:
        """Enters an outcome; False: another was final already, this one is counted as late."""
        if (outcome == "SCORED") != (reward is not None):
            raise LedgerError(f"{episode_id}: {outcome} with reward {reward}; exactly SCORED episodes have one")
        now = time.time()
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            changed = self._db.execute(
                "UPDATE episodes SET outcome = ?, reason = ?, reward = ?, archive_offset = ?, settled_at = ?"
                " WHERE episode_id = ? AND outcome IS NULL",
                (outcome, reason, reward, archive_offset, now, episode_id),
            ).rowcount
            if changed:
                return True
            known = self._db.execute("SELECT outcome FROM episodes WHERE episode_id = ?", (episode_id,)).fetchone()
            if known is None:
                raise LedgerError(f"{episode_id} was never dispatched by this run")
            # Dead letters are read from the beginning each time a trainer starts.
            if known != ("DEAD",) or outcome != "DEAD":
                self._db.execute(
                    "INSERT OR IGNORE INTO late (episode_id, outcome, at) VALUES (?, ?, ?)", (episode_id, outcome, now)
                )
        return False

    def use(self, episode_ids: Sequence[str], use: str, *, reason: str = "") -> None:
        """Enters what became of scored episodes; none of them may have a use already."""
        if not episode_ids:
            return
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for episode_id in episode_ids:
                changed = self._db.execute(
                    "UPDATE episodes SET use = ?, use_reason = ?,"
                    " use_number = (SELECT COALESCE(MAX(use_number), 0) + 1 FROM episodes)"
                    " WHERE episode_id = ? AND outcome = 'SCORED' AND use IS NULL",
                    (use, reason, episode_id),
                ).rowcount
                if not changed:
                    raise LedgerError(f"{episode_id} is not scored and unused, so it cannot become {use}")

    def position(self) -> int:
        """Number of the newest use; a checkpoint names the one it includes."""
        with self._lock:
            return int(self._db.execute("SELECT COALESCE(MAX(use_number), 0) FROM episodes").fetchone()[0])

    def rewind(self, position: int) -> int:
        """Takes back all uses after `position`, which the restored weights know nothing of; returns how many."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            return self._db.execute(
                "UPDATE episodes SET use = NULL, use_reason = '', use_number = NULL WHERE use_number > ?", (position,)
            ).rowcount

    def unfinished(self) -> list[Entry]:
        """Episodes that are open, or scored and unused, oldest first."""
        return self._entries("outcome IS NULL OR (outcome = 'SCORED' AND use IS NULL)")

    def settled(self, group_id: str) -> list[Entry]:
        """The group's episodes that have an outcome, oldest first."""
        return self._entries("group_id = ? AND outcome IS NOT NULL", group_id)

    def groups(self) -> int:
        """How many groups were ever entered."""
        with self._lock:
            return int(self._db.execute("SELECT COUNT(DISTINCT group_id) FROM episodes").fetchone()[0])

    def counts(self) -> dict[str, int]:
        """How many episodes stand where, under the contract's names."""
        with self._lock:
            rows = self._db.execute("SELECT outcome, use, COUNT(*) FROM episodes GROUP BY outcome, use").fetchall()
            late = self._db.execute("SELECT COUNT(*) FROM late").fetchone()[0]
        counts = dict.fromkeys(("dispatched", "open", *map(str.lower, OUTCOMES), "unused", *map(str.lower, USES)), 0)
        for outcome, use, number in rows:
            counts["dispatched"] += number
            counts["open" if outcome is None else outcome.lower()] += number
            if outcome == "SCORED":
                counts["unused" if use is None else use.lower()] += number
        return counts | {"late": int(late)}

    def _entries(self, condition: str, *values: str) -> list[Entry]:
        with self._lock:
            rows = self._db.execute(f"{_ENTRIES} WHERE {condition} ORDER BY rowid", values).fetchall()
        return [Entry(*row) for row in rows]
