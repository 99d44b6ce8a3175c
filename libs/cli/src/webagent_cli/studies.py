"""What a study found, kept as study-<kind>.json, and its page: a table and a plot in report.html."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from pydantic import BaseModel

from webagent_cli import charts
from webagent_cli.charts import Series
from webagent_cli.runs import Run

KINDS = ("turns", "thinking", "samples")


class Point(BaseModel):
    """One point of the plot; None: nothing was scored."""

    label: str
    x: float
    rate: float | None
    low: float | None = None
    high: float | None = None


class Study(BaseModel):
    """A table, and the points of its plot: a line where `x_label` names an axis, else columns."""

    kind: str
    title: str
    plot: str
    caption: str
    x_label: str
    points: list[Point]
    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def picture(self) -> Markup:
        """The plot, as SVG."""
        if not self.x_label:
            columns = [
                (point.label, point.rate, point.low, point.high, "--accent")
                for point in self.points
                if point.rate is not None and point.low is not None and point.high is not None
            ]
            return charts.interval_chart(columns, label=self.plot)
        drawn = [(point.x, point.rate) for point in self.points if point.rate is not None]
        places = [point.x for point in self.points]
        lines = [Series(self.plot, drawn)]
        return charts.line_chart(lines, label=self.plot, x_label=self.x_label, x_ticks=places, percent=True)


def read_studies(run: Run) -> list[Study]:
    """The studies that were made of a run."""
    return [Study.model_validate_json(run.study(kind).read_text()) for kind in KINDS if run.study(kind).is_file()]


def write_studies(run: Run) -> None:
    """Writes the page of a run that has nothing but studies."""
    environment = Environment(loader=PackageLoader("webagent_cli"), autoescape=select_autoescape(["html", "j2"]))
    page = environment.get_template("study.html.j2").render(
        run=run.id, studies=read_studies(run), config_yaml=run.config.read_text()
    )
    run.report.write_text(page)
