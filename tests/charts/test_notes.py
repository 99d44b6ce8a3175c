"""What Helm says after it has installed: commands that name what is there."""

from __future__ import annotations

import re

import charts
import pytest
from google.protobuf import descriptor_pool
from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.inference.v1 import inference_pb2
from webagent.rollout.v1 import rollout_pb2
from webagent.trainer.v1 import trainer_pb2

# Their descriptors are known once they are imported.
CONTRACTS = (env_pb2, evaluator_pb2, inference_pb2, rollout_pb2, trainer_pb2)


def notes(chart: str, values: str, *options: str) -> str:
    file = charts.CHARTS / chart / "ci" / f"{values}-values.yaml"
    text = charts.helm(4, "install", "rel", charts.CHARTS / chart, "--values", file, "--dry-run=client", *options)
    return text.partition("NOTES:")[2]


@pytest.mark.parametrize("chart", charts.SERVICES)
def test_notes_name_rpcs_and_services_that_are_there(chart: str) -> None:
    case = "job" if chart == "trainer" else "default"
    text = notes(chart, case)
    (call,) = re.findall(r"(webagent\.\S+)/(\w+)", text)
    service = descriptor_pool.Default().FindServiceByName(call[0])
    assert call[1] in service.methods_by_name
    rendered = charts.case(f"{chart}/{case}-values")
    names = {(each["kind"], each["metadata"]["name"]) for each in rendered.objects}
    kinds = {"svc": "Service", "job": "Job", "pod": "StatefulSet"}
    for kind, name in re.findall(r"port-forward (\w+)/(\S+)", text):
        assert (kinds[kind], name) in names
    assert "helm test rel" in text
    assert "tls.enabled turns TLS on" in text


def test_notes_of_env_say_what_locks_pages_in() -> None:
    assert "networkPolicy.internet.enabled" in notes("env", "default")
    quiet = notes("env", "everything")
    assert "Nothing but the restricted pod" in notes("env", "default")
    assert "Nothing but the restricted pod" not in quiet
    assert "plaintext" not in quiet


def test_notes_of_the_umbrella_say_what_is_on_and_what_is_for_trials() -> None:
    text = notes("webagent", "default")
    assert text.count(": on\n") == len(charts.SERVICES)
    assert "for trials" in text
    assert "is not ReadWriteMany" not in text
    shared = ("--set", "global.sharedClaim=shared", "--set", "sharedStorage.create=true")
    assert "is not ReadWriteMany" in notes("webagent", "default", *shared)
