"""Tables of success rates: the paper's form where tasks play on its sites, else one line for each task.

Each rate is successes over SCORED episodes with its 95 % Wilson interval. A row is marked incomplete, with how many
tasks of each site are missing, unless every task was SCORED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from webagent.evaluator.v1 import evaluator_pb2
from webagent_runtime.config import ConfigError

from webagent_cli.published import SITES, SOURCE, TABLE_2
from webagent_cli.result import Difference, Rate, rate_of

TITLES = {"reddit": "Reddit", "gitlab": "GitLab", "shopping_admin": "CMS", "map": "Map", "shopping": "Shopping"}
PUBLISHED = "†"


@dataclass(frozen=True)
class Row:
    """One evaluation; `difference` is that of the table's first row to this one, on the tasks that both have."""

    name: str
    sites: dict[str, Rate]
    overall: Rate
    missing: dict[str, int]
    difference: Difference | None = None

    def incomplete(self) -> str:
        """What is missing, for people; empty: nothing."""
        return ", ".join(f"{count} of {site}" for site, count in self.missing.items())


@dataclass(frozen=True)
class Sheet:
    """A table as text: header, lines, and notes below."""

    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def markdown(self) -> str:
        """As Markdown."""
        rows = [self.header, ["---"] * len(self.header), *self.lines]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        return table + "\n" + "".join(f"\n{note}\n" for note in self.notes)

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(*self.header, box=box.SIMPLE, caption="\n".join(self.notes), caption_justify="left")
        for line in self.lines:
            table.add_row(*line)
        return table


def row_of(
    name: str, summary: evaluator_pb2.SummarizeResponse, difference: evaluator_pb2.PairedDifference | None = None
) -> Row:
    """An evaluation as a row."""
    return Row(
        name=name,
        sites={site.site: rate_of(site.rate) for site in summary.sites},
        overall=rate_of(summary.overall),
        missing={site.site: site.missing_tasks for site in summary.sites if site.missing_tasks},
        difference=None
        if difference is None
        else Difference(pairs=difference.pairs, mean=difference.mean, low=difference.low, high=difference.high),
    )


def sheet_of(rows: Sequence[Row], *, published: bool = False) -> Sheet:
    """The table of some evaluations; `published` adds the paper's numbers, marked as such."""
    sites = any(site in SITES for row in rows for site in row.sites)
    if published and not sites:
        raise ConfigError("--published is for tasks on the paper's sites, and these are none")
    if sites:
        return _paper_form(rows, published=published)
    return _by_task(rows)


def _paper_form(rows: Sequence[Row], *, published: bool) -> Sheet:
    lines = [[row.name, *(_cell(row.sites.get(site)) for site in SITES), _cell(row.overall)] for row in rows]
    notes = _notes(rows)
    if published:
        lines += [[f"{name} {PUBLISHED}", *(f"{value:.1f} %" for value in values)] for name, values in TABLE_2]
        notes.append(f"{PUBLISHED} {SOURCE}.")
    return Sheet(["", *(TITLES[site] for site in SITES), "Avg"], lines, notes)


def _by_task(rows: Sequence[Row]) -> Sheet:
    tasks = sorted({site for row in rows for site in row.sites})
    lines = [[task, *(_cell(row.sites.get(task)) for row in rows)] for task in tasks]
    lines.append(["overall", *(_cell(row.overall) for row in rows)])
    return Sheet(["task", *(row.name for row in rows)], lines, _notes(rows))


def _cell(rate: Rate | None) -> str:
    if rate is None:
        return "-"
    invalid = f" +{rate.invalid} invalid" if rate.invalid else ""
    return f"{rate.text()} n={rate.n}{invalid}"


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [f"INCOMPLETE: {row.name} lacks {row.incomplete()}." for row in rows if row.missing]
    notes += [
        f"{rows[0].name} minus {row.name}: {row.difference.text()} over {row.difference.pairs} pairs."
        for row in rows[1:]
        if row.difference is not None
    ]
    return notes
