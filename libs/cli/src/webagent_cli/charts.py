"""Line and interval charts as inline SVG; colours come from the page's CSS variables, so they follow its theme."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 34


@dataclass(frozen=True)
class Axis:
    """One axis: its range and where its ticks stand."""

    low: float
    high: float
    ticks: Sequence[float]

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; what is outside the range is put on its edge."""
        span = self.high - self.low or 1.0
        return min(1.0, max(0.0, (value - self.low) / span))


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = "--accent"


PERCENT = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def percent(value: float) -> str:
    """A tick in per cent."""
    return f"{100 * value:.0f} %"


def number(value: float) -> str:
    """A tick as a short number."""
    return f"{value:.3g}"


def spanning(values: Sequence[float], *, floor: float | None = None) -> Axis:
    """An axis around the values, with round ticks."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if floor is not None:
        low = min(floor, low)
    raw = (high - low) / 4 or abs(high) / 4 or 0.25
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return Axis(first * step, last * step, [round(index * step, 10) for index in range(first, last + 1)])


def counting(last: int) -> Axis:
    """An axis of iterations, from 1, ticks at whole numbers."""
    step = max(1, -(-last // 8))
    return Axis(1, max(2, last), [*range(1, last + 1, step)])


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return TOP + (1 - axis.share(value)) * (HEIGHT - TOP - BOTTOM)


def _frame(x: Axis, y: Axis, *, x_label: str, tick: str) -> list[str]:
    show = percent if tick == "percent" else number
    parts = []
    for value in y.ticks:
        at = _y(y, value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{at + 4:.1f}" class="tick end">{show(value)}</text>')
    for value in x.ticks:
        parts.append(f'<text x="{_x(x, value):.1f}" y="{HEIGHT - 16}" class="tick middle">{value:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" class="tick end">{escape(x_label)}</text>')
    return parts


def line_chart(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    label: str,
    x_label: str = "iteration",
    tick: str = "number",
    band: tuple[float, float] | None = None,
) -> str:
    """Lines with dots; `band` shades the range of y that is meant to hold."""
    parts = _frame(x, y, x_label=x_label, tick=tick)
    if band:
        top, bottom = _y(y, band[1]), _y(y, band[0])
        width, height = WIDTH - LEFT - RIGHT, bottom - top
        parts.insert(0, f'<rect x="{LEFT}" y="{top:.1f}" width="{width}" height="{height:.1f}" class="band"/>')
    for one in series:
        placed = [(_x(x, a), _y(y, b)) for a, b in one.points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
        parts.append(f'<polyline points="{path}" class="line" style="stroke:var({one.colour})"/>')
        for (a, b), (raw_x, raw_y) in zip(placed, one.points, strict=True):
            title = f"{escape(one.name)} {raw_x:g}: {raw_y:.4g}"
            dot = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" style="fill:var({one.colour})">'
            parts.append(f"{dot}<title>{title}</title></circle>")
    return _svg(parts, label)


def interval_chart(rows: Sequence[tuple[str, float, float, float, str]], *, label: str) -> str:
    """Rates with their intervals, one column each: name, rate, low, high, colour."""
    parts = _frame(Axis(0, 1, ()), PERCENT, x_label="", tick="percent")
    for index, (name, rate, low, high, colour) in enumerate(rows):
        at = LEFT + (index + 0.5) * (WIDTH - LEFT - RIGHT) / len(rows)
        top, base = _y(PERCENT, rate), _y(PERCENT, 0.0)
        style = f'style="fill:var({colour})"'
        parts.append(f'<rect x="{at - 34:.1f}" y="{top:.1f}" width="68" height="{base - top:.1f}" rx="4" {style}/>')
        high_y, low_y = _y(PERCENT, high), _y(PERCENT, low)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{high_y:.1f}" y2="{low_y:.1f}" class="whisker"/>')
        for end in (high_y, low_y):
            parts.append(f'<line x1="{at - 7:.1f}" x2="{at + 7:.1f}" y1="{end:.1f}" y2="{end:.1f}" class="whisker"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - 14}" class="tick middle">{escape(name)}</text>')
    return _svg(parts, label)


def _svg(parts: Sequence[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"
