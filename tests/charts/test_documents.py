"""What the charts' documents tell a reader to type or to open is there and works, as far as that needs no cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import charts
import pytest
from google.protobuf import json_format
from webagent.trainer.v1 import trainer_pb2
from webagent_trainer.config import parse_run

DOCUMENTS = sorted((charts.ROOT / "k8s").glob("*.md")) + sorted(charts.CHARTS.glob("*/README.md"))
TEXTS = [*DOCUMENTS, *sorted(charts.EXAMPLES.glob("*.yaml"))]
# A run of the reader's own.
RUN = charts.CHARTS / "trainer" / "ci" / "job-values.yaml"


def installs() -> list[str]:
    """Every command that installs or upgrades a chart of ours."""
    found = []
    for path in TEXTS:
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if match := re.search(r"helm (?:install|upgrade) (\S+ k8s/charts/.*)", line):
                found.append(match[1].partition("  #")[0].strip())
    return sorted(set(found))


@pytest.mark.parametrize("command", installs())
def test_a_command_that_installs_renders(command: str) -> None:
    text = command.replace("$REGISTRY", "registry.example").replace("REGISTRY", "registry.example")
    name, chart, *options = shlex.split(text.replace("my-run.yaml", str(RUN)))
    options = [each for each in options if each != "--reuse-values"]
    if "--reuse-values" in command:
        options += ["--set", "global.imageRegistry=registry.example"]
    resolved = [str(charts.ROOT / each) if each.startswith("k8s/") else each for each in options]
    assert charts.parse(charts.helm(3, "template", name, charts.ROOT / chart, *resolved))


def test_there_are_commands_to_hold() -> None:
    assert len(installs()) >= 8


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(charts.ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_a_run_takes_ten_commands() -> None:
    text = (charts.ROOT / "k8s" / "README.md").read_text()
    (block,) = re.findall(r"in ten commands\n.*?```sh\n(.*?)```", text, re.DOTALL)
    assert len(block.strip().splitlines()) == 10
    for name in re.findall(r"deployment/webagent-(\w+)", block):
        assert name in charts.SERVICES


def test_the_run_to_start_by_grpc_is_one_that_the_trainer_takes() -> None:
    request = json_format.Parse((charts.EXAMPLES / "run.json").read_text(), trainer_pb2.StartRunRequest())
    assert parse_run(request.config_yaml).run_directory.name == request.run_id
