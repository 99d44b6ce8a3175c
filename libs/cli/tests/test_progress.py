"""Progress where there is no terminal: a line now and then, one at the end."""

import io

from rich.console import Console
from webagent_cli.progress import Display, duration


def test_the_end_of_a_phase_is_told_once() -> None:
    written = io.StringIO()
    display = Display(Console(file=written, width=120))
    with display.phase("bc", 0) as view:
        view.advance({}, done=0, total=0)
        view.advance({"loss": "1.2"}, done=1, total=2)
        view.advance({"loss": "0.1"}, done=2, total=2)
        view.advance({"held out": "0.2"}, done=2, total=2)
    lines = written.getvalue().splitlines()
    assert len(lines) == 1
    assert "bc  2/2  loss 0.1" in lines[0]


def test_a_terminal_gets_a_bar_that_is_taken_away() -> None:
    written = io.StringIO()
    console = Console(file=written, width=120, force_terminal=True)
    with Display(console).phase("rl", 10) as view:
        view.advance({"reward": "0.5"})
    assert "reward 0.5" in written.getvalue()


def test_durations_are_for_people() -> None:
    assert duration(59.6) == "1 min 00 s"
    assert duration(7) == "7 s"
    assert duration(3600) == "60 min 00 s"
