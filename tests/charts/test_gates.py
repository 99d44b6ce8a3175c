"""Lint, render and validate: both Helms, the oldest and newest Kubernetes, every chart with every ci values file."""

from __future__ import annotations

import copy
import sys
from typing import Any

import chart_schemas
import chart_tools
import charts
import pytest
from charts import CASES

OLDEST, NEWEST = chart_tools.OLDEST, chart_tools.NEWEST


@pytest.mark.parametrize("name", CASES)
def test_every_render_is_valid(name: str) -> None:
    found = [each for obj in charts.case(name).objects for each in chart_schemas.problems(obj, NEWEST)]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
@pytest.mark.parametrize("major", [3, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_render_is_valid_everywhere(name: str, major: int, kubernetes: str) -> None:
    objects = charts.case(name, major, kubernetes).objects
    found = [each for obj in objects for each in chart_schemas.problems(obj, kubernetes)]
    assert not found, "\n".join(found)


def test_both_helms_render_the_same() -> None:
    name = "webagent/everything-values"
    by_name = [{(o["kind"], o["metadata"]["name"]): o for o in charts.case(name, major).objects} for major in (3, 4)]
    assert by_name[0] == by_name[1]


@pytest.mark.parametrize("chart", [*charts.SERVICES, "webagent"])
def test_a_chart_passes_lint(chart: str) -> None:
    values = charts.CHARTS / chart / "ci"
    name = "job" if chart == "trainer" else "default"
    charts.helm(4, "lint", "--strict", charts.CHARTS / chart, "--values", values / f"{name}-values.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("major", [3, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_chart_passes_lint_with_every_values_file(name: str, major: int) -> None:
    chart, _, values = name.partition("/")
    file = charts.CHARTS / chart / "ci" / f"{values}.yaml"
    charts.helm(major, "lint", "--strict", charts.CHARTS / chart, "--values", file)


@pytest.mark.slow
@pytest.mark.parametrize("major", [3, 4])
def test_a_packed_chart_renders_as_the_folder_does(major: int, tmp_path: Any) -> None:
    for chart in (*charts.SERVICES, "webagent"):
        charts.helm(major, "package", charts.CHARTS / chart, "--destination", tmp_path)
        name = "job" if chart == "trainer" else "default"
        (packed,) = tmp_path.glob(f"{chart}-*.tgz")
        values = charts.CHARTS / chart / "ci" / f"{name}-values.yaml"
        text = charts.helm(major, "template", charts.RELEASE, packed, "--kube-version", NEWEST, "--values", values)
        assert charts.parse(text) == list(charts.case(f"{chart}/{name}-values", major).objects)


def test_kubernetes_that_is_too_old_is_refused() -> None:
    with pytest.raises(charts.HelmError, match="incompatible with Kubernetes"):
        charts.render("env", values={"image.registry": "registry.example"}, kubernetes="1.29.0")


BROKEN: list[tuple[str, str, str, Any]] = [
    ("env/everything-values", "Deployment", "spec/template/spec/containers/0/livenessProb", {}),
    ("env/everything-values", "ScaledObject", "spec/fallback/replicas", "two"),
    ("env/everything-values", "TriggerAuthentication", "spec/secretTargetRef/0/keys", "a"),
    ("env/everything-values", "ServiceMonitor", "spec/endpoints/0/intervall", "15s"),
    ("env/everything-values", "PrometheusRule", "spec/groups/0/rules/0/for", "soon"),
    ("env/everything-values", "GRPCRoute", "spec/rules/0/backendRefs/0/port", "grpc"),
    ("env/everything-values", "Certificate", "spec/dnsNames", "env"),
    (
        "trainer/nodes-jobset-values",
        "JobSet",
        "spec/replicatedJobs/0/template/spec/template/spec/containers/0/img",
        "a",
    ),
    ("trainer/nodes-trainjob-values", "TrainJob", "spec/runtimeRef/kind", "Runtime"),
    ("trainer/nodes-trainjob-values", "TrainingRuntime", "spec/mlPolicy/nodes", 2),
    ("inference/multinode-values", "LeaderWorkerSet", "spec/leaderWorkerTemplate/sise", 2),
]


@pytest.mark.parametrize(("name", "kind", "path", "value"), BROKEN, ids=[kind for _, kind, _, _ in BROKEN])
def test_a_broken_object_is_not_valid(name: str, kind: str, path: str, value: Any) -> None:
    obj = copy.deepcopy(charts.case(name).all(kind)[0])
    assert not chart_schemas.problems(obj, NEWEST)
    *parents, key = path.split("/")
    inner: Any = obj
    for each in parents:
        inner = inner[int(each) if each.isdigit() else each]
    inner[key] = value
    assert chart_schemas.problems(obj, NEWEST)


def test_schemas_and_readmes_are_what_follows_from_the_values() -> None:
    sys.path.insert(0, str(charts.ROOT / "k8s"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    stale = [str(path) for path, text in generate.outputs().items() if path.read_text() != text]
    assert not stale, "run make charts"


def test_every_value_has_a_meaning() -> None:
    sys.path.insert(0, str(charts.ROOT / "k8s"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    for chart in (*charts.SERVICES, "webagent"):
        text = (charts.CHARTS / chart / "values.yaml").read_text()
        meanings = generate.comments(text)
        for path, default in generate.walk(charts.parse(text)[0]):
            prefixes = [path.rsplit(".", depth)[0] for depth in range(path.count(".") + 1)]
            branch = isinstance(default, dict) and default
            assert branch or any(prefix in meanings for prefix in prefixes), f"{chart}: {path} says nothing"
