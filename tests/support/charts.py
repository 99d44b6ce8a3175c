"""Charts rendered by Helm, as the objects that they are. A render is made once for all tests of a session."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import chart_tools
import yaml

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "k8s" / "charts"
EXAMPLES = ROOT / "k8s" / "examples"
SERVICES = ("env", "inference", "evaluator", "rollout", "trainer")
CASES = tuple(sorted(f"{path.parents[1].name}/{path.stem}" for path in CHARTS.glob("*/ci/*-values.yaml")))
# What the ci values pass in: it goes through as it is, and none of our rules speaks of it.
USERS_CONTAINERS = {"first", "side"}
USERS_VOLUMES = {"extra"}
RELEASE = "rel"

Object = dict[str, Any]


class HelmError(Exception):
    """Helm did not render; what it said."""


@dataclass(frozen=True)
class Render:
    """The objects of one chart with one set of values."""

    name: str
    objects: tuple[Object, ...]

    def one(self, kind: str, name: str | None = None) -> Object:
        """The only object of a kind, or the one of that name."""
        found = self.all(kind, name)
        assert len(found) == 1, f"{self.name}: {len(found)} objects {kind} {name or ''}"
        return found[0]

    def all(self, kind: str, name: str | None = None) -> list[Object]:
        """Objects of a kind."""
        return [each for each in self.objects if each["kind"] == kind and name in {None, each["metadata"]["name"]}]

    def own(self) -> list[Object]:
        """Without what the values pass in."""
        return [each for each in self.objects if not each["metadata"]["name"].endswith("extra")]


def helm(major: int, *arguments: str | Path) -> str:
    """Runs helm without a cluster, and without the user's own settings."""
    home = chart_tools.HOME / "home"
    environment = {
        **os.environ,
        "KUBECONFIG": os.devnull,
        "HELM_CACHE_HOME": f"{home}/c",
        "HELM_CONFIG_HOME": f"{home}/f",
    }
    command = [str(chart_tools.helm(major)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    if done.returncode:
        raise HelmError(f"{done.stdout}\n{done.stderr}")
    return done.stdout


def template(
    chart: str,
    *files: Path,
    values: dict[str, Any] | None = None,
    major: int = 3,
    kubernetes: str = chart_tools.NEWEST,
    options: tuple[str, ...] = (),
) -> str:
    """What `helm template` prints."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in (values or {}).items()]
    named = [option for file in files for option in ("--values", file)]
    return helm(major, "template", RELEASE, CHARTS / chart, "--kube-version", kubernetes, *named, *given, *options)


def render(
    chart: str,
    *files: Path,
    values: dict[str, Any] | None = None,
    major: int = 3,
    kubernetes: str = chart_tools.NEWEST,
) -> Render:
    """A chart with values, not remembered."""
    text = template(chart, *files, values=values, major=major, kubernetes=kubernetes)
    return Render(chart, tuple(parse(text)))


@cache
def case(name: str, major: int = 3, kubernetes: str = chart_tools.NEWEST) -> Render:
    """A chart with one of its ci values: `env/everything-values`."""
    chart, _, values = name.partition("/")
    rendered = render(chart, CHARTS / chart / "ci" / f"{values}.yaml", major=major, kubernetes=kubernetes)
    return Render(name, rendered.objects)


def parse(text: str) -> list[Object]:
    """The objects of a stream of documents."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def pod_specs(obj: Object) -> Iterator[Object]:
    """Every pod's spec in an object, however deep."""
    for _, template_ in pod_templates(obj):
        yield template_["spec"]


def pod_templates(obj: Any, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every pod template in an object with its path; a Pod is its own."""
    if not isinstance(obj, dict | list):
        return
    if isinstance(obj, dict) and isinstance(obj.get("spec"), dict) and "containers" in obj["spec"]:
        yield path, obj
        return
    for key, inner in obj.items() if isinstance(obj, dict) else enumerate(obj):
        yield from pod_templates(inner, f"{path}/{key}")


def containers(obj: Object) -> Iterator[Object]:
    """Our own containers of an object, init containers too."""
    for spec in pod_specs(obj):
        for each in (*spec.get("initContainers", ()), *spec["containers"]):
            if each["name"] not in USERS_CONTAINERS:
                yield each


def component(obj: Object) -> str | None:
    """Whose object it is."""
    found: str | None = obj["metadata"].get("labels", {}).get("app.kubernetes.io/component")
    return found


def configuration(rendered: Render, service: str) -> dict[str, Any]:
    """The configuration file of a service in a render."""
    for each in rendered.all("ConfigMap"):
        labels = each["metadata"].get("labels", {})
        if labels.get("app.kubernetes.io/component") == service and "config.json" in each["data"]:
            loaded: dict[str, Any] = yaml.safe_load(each["data"]["config.json"])
            return loaded
    raise AssertionError(f"{rendered.name} has no configuration of {service}")
