"""Line and column charts as inline SVG, whose colours are the page's CSS variables, so that they follow its theme.

matplotlib knows no CSS: it draws each variable as a colour of its own, whose place the name takes afterwards.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, PercentFormatter

VARIABLES = ("--zero", "--bc", "--rl", "--accent", "--ink", "--soft", "--rule", "--shade")
COLOURS = {variable: f"#fe01{index:02x}" for index, variable in enumerate(VARIABLES)}
SIZE_INCHES = (5.2, 2.3)
STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "webagent",
    "font.size": 8.5,
    "text.color": COLOURS["--soft"],
    "axes.labelcolor": COLOURS["--soft"],
    "xtick.color": COLOURS["--soft"],
    "ytick.color": COLOURS["--soft"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": COLOURS["--rule"],
}


@dataclass(frozen=True)
class Series:
    """One line of a chart; `colour` is one of VARIABLES."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = "--accent"


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x_label: str = "iteration",
    x_ticks: Sequence[float] | None = None,
    percent: bool = False,
    band: tuple[float, float] | None = None,
) -> Markup:
    """Lines with dots, 0 in sight unless there is a `band`: the range, shaded, in which they are meant to lie."""
    with mpl.rc_context(STYLE):
        figure, axes = _blank(percent=percent)
        for one in series:
            x, y = zip(*one.points, strict=True)
            axes.plot(x, y, color=COLOURS[one.colour], label=one.name, lw=1.7, marker="o", markersize=4, clip_on=False)
        axes.xaxis.set_major_locator(FixedLocator(x_ticks) if x_ticks else MaxNLocator(integer=True))
        axes.set_xlabel(x_label, loc="right")
        if band:
            axes.axhspan(*band, color=COLOURS["--shade"], linewidth=0)
        elif not percent:
            axes.set_ylim(bottom=min(0.0, *(value for one in series for _, value in one.points)))
        if len(series) > 1:
            axes.legend(frameon=False)
        return _svg(figure, label)


def interval_chart(rows: Sequence[tuple[str, float, float, float, str]], *, label: str) -> Markup:
    """Rates with their intervals, one column each: name, rate, low, high, colour."""
    names, rates, lows, highs, colours = zip(*rows, strict=True)
    with mpl.rc_context(STYLE):
        figure, axes = _blank(percent=True)
        axes.bar(names, rates, width=0.45, color=[COLOURS[colour] for colour in colours])
        middles = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
        halves = [(high - low) / 2 for low, high in zip(lows, highs, strict=True)]
        axes.errorbar(names, middles, yerr=halves, fmt="none", ecolor=COLOURS["--ink"], capsize=4, clip_on=False)
        return _svg(figure, label)


def _blank(*, percent: bool) -> tuple[Figure, Axes]:
    figure = Figure(SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[:].set_visible(False)
    if percent:
        axes.set_ylim(0.0, 1.0)
        axes.yaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    return figure, axes


def _svg(figure: Figure, label: str) -> Markup:
    written = io.StringIO()
    figure.savefig(
        written, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
    )
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    # The names of groups are the same in every chart; nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    # matplotlib escapes the texts.
    return Markup(svg)  # noqa: S704
