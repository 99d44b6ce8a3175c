"""The report's further curves of reinforcement learning: one row of a table each, drawn where a run has the numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from webagent_cli import charts
from webagent_cli.charts import Series
from webagent_cli.iterations import Iteration


@dataclass(frozen=True)
class Curve:
    """A chart: its lines are metric, name and colour."""

    title: str
    caption: str
    lines: tuple[tuple[str, str, str], ...]
    percent: bool = False


CURVES = (
    Curve(
        "Entropy",
        "Of the policy where replies were drawn, in nats: near 0 it says the same every time.",
        (("entropy", "entropy", "--rl"),),
    ),
    Curve(
        "Whose tokens pull",
        "Share of the gradient's size by episodes better than their group, and worse.",
        (("gradient_share_success", "better", "--rl"), ("gradient_share_failure", "worse", "--bc")),
        percent=True,
    ),
    Curve(
        "What teaches nothing",
        "Groups whose rewards are all equal, and broken episodes among the newest.",
        (("zero_variance_share", "no variance", "--rl"), ("invalid_share", "INVALID", "--bc")),
        percent=True,
    ),
    Curve(
        "Reply length",
        "Mean tokens of a reply.",
        (("reply_tokens_mean", "tokens", "--rl"),),
    ),
    Curve("Turns", "Mean turns of an episode.", (("turns_mean", "turns", "--rl"),)),
    Curve(
        "Spread of the importance ratio",
        "Deviation of trainer over sampler at equal weights.",
        (("ratio_spread", "deviation", "--rl"),),
    ),
    Curve(
        "Distance from the reference", "Estimated KL of the policy and the one RL began with.", (("kl", "KL", "--rl"),)
    ),
    Curve(
        "Staleness",
        "Versions between an episode's policy and the one that learned from it.",
        (("staleness", "versions", "--rl"),),
    ),
)


def further_curves(iterations: Sequence[Iteration]) -> list[tuple[str, str, Markup]]:
    """Title, caption and picture of each; one whose numbers are all 0 shows nothing and is left out."""
    return [drawn for curve in CURVES if (drawn := _drawn(curve, iterations)) is not None]


def _drawn(curve: Curve, iterations: Sequence[Iteration]) -> tuple[str, str, Markup] | None:
    series = []
    for metric, name, colour in curve.lines:
        points = [(one.iteration, one.metrics[metric]) for one in iterations if metric in one.metrics]
        if points:
            series.append(Series(name, points, colour))
    if not any(value for line in series for _, value in line.points):
        return None
    return curve.title, curve.caption, charts.line_chart(series, label=curve.title, percent=curve.percent)
