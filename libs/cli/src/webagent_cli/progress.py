"""Live progress of a phase: a bar with its numbers on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_SECONDS = 15.0


def duration(seconds: float) -> str:
    """Minutes and seconds, for people."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class PhaseView:
    """What is shown of one phase. `advance` is called for each finished unit."""

    def __init__(self, name: str, total: int, done: int, console: Console) -> None:
        self._name = name
        self._total = total
        self._already = done
        self._done = done
        self._console = console
        self._begun = time.monotonic()
        self._said = self._begun
        self._said_done = -1
        self._progress: Progress | None = None
        if console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description:<12}"),
                BarColumn(bar_width=28),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task(name, total=total or None, completed=done, numbers="")

    def start(self) -> None:
        """Begins to show."""
        if self._progress:
            self._progress.start()

    def stop(self) -> None:
        """Takes the bar away."""
        if self._progress:
            self._progress.stop()

    @property
    def seconds(self) -> float:
        """Since the phase began here."""
        return time.monotonic() - self._begun

    def advance(self, numbers: dict[str, str], *, done: int | None = None, total: int | None = None) -> None:
        """Counts one unit (or states how many are done) and shows the numbers beside the time left."""
        self._done = self._done + 1 if done is None else done
        self._total = total or self._total
        here = self._done - self._already
        shown = dict(numbers)
        if here > 0 and self._total:
            left = (self._total - self._done) * self.seconds / here
            shown["left"] = duration(left)
        text = "  ".join(f"{name} {value}" for name, value in shown.items())
        if self._progress:
            self._progress.update(self._task, completed=self._done, total=self._total or None, numbers=text)
        elif self._is_worth_a_line():
            self._said, self._said_done = time.monotonic(), self._done
            self._console.print(f"{self._name}  {self._done}/{self._total}  {text}", highlight=False, soft_wrap=True)

    def _is_worth_a_line(self) -> bool:
        """Now and then while something moves, and once at the end."""
        moved = self._total > 0 and self._done != self._said_done
        return moved and (self._done == self._total or time.monotonic() - self._said >= PLAIN_SECONDS)


class Display:
    """Where the command tells how it goes."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def phase(self, name: str, total: int, *, done: int = 0) -> Iterator[PhaseView]:
        """Shows a phase while the block runs."""
        view = PhaseView(name, total, done, self.console)
        view.start()
        try:
            yield view
        finally:
            view.stop()
