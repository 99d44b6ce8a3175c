"""The examples render to what is kept beside them, are valid, and hold the policies like any other values."""

from __future__ import annotations

import chart_goldens
import chart_schemas
import chart_tools
import charts
import pytest
from chart_configs import read, services
from chart_policies import POLICIES


def example(name: str) -> str:
    if chart_goldens.lacks_backend(name):
        pytest.skip(f"inference knows no backend {chart_goldens.BACKEND_OF[name]}")
    return name


@pytest.mark.parametrize("name", chart_goldens.NAMES)
def test_an_example_renders_to_what_is_kept(name: str) -> None:
    kept = chart_goldens.RENDERED / f"{example(name)}.yaml"
    assert chart_goldens.golden(name) == kept.read_text(), "run make charts and look at the difference"


@pytest.mark.parametrize("name", chart_goldens.NAMES)
def test_an_example_configures_services_in_their_own_words(name: str) -> None:
    rendered = chart_goldens.render_example(example(name))
    for service in services(rendered):
        assert read(rendered, service)


@pytest.mark.slow
@pytest.mark.parametrize("name", chart_goldens.NAMES)
def test_an_example_is_valid_and_holds_every_policy(name: str) -> None:
    rendered = chart_goldens.render_example(example(name))
    found = [each for obj in rendered.objects for each in chart_schemas.problems(obj, chart_tools.NEWEST)]
    if name not in {"inference-vllm-grpc"}:
        found += [problem for policy in POLICIES.values() for problem in policy(rendered)]
    assert not found, "\n".join(found)


def test_production_differs_from_the_trial_where_it_must() -> None:
    rendered = chart_goldens.render_example("production")
    assert not [obj for obj in rendered.objects if "nats" in obj["metadata"]["name"]]
    assert rendered.one("PersistentVolumeClaim")["metadata"]["name"] == "rel-trainer"
    run = charts.configuration(rendered, "trainer")["run"]
    assert run["publish"]["uri"] == "s3://webagent/policies"
    assert run["payloads"]["uri"] == charts.configuration(rendered, "rollout")["payloads"]["uri"]
    assert {each["metadata"]["name"] for each in rendered.all("ScaledObject")} == {"rel-env", "rel-rollout"}
    (trigger,) = rendered.one("ScaledObject", "rel-rollout")["spec"]["triggers"]
    assert trigger["metadata"]["account"] == "AGENTS"
    assert len(rendered.all("Certificate")) == len(charts.SERVICES)


def test_another_model_is_copied_for_the_trainer_as_for_inference() -> None:
    rendered = chart_goldens.render_example("inference-another-model")
    for kind, name in (("Deployment", "rel-inference"), ("StatefulSet", "rel-trainer")):
        (spec,) = charts.pod_specs(rendered.one(kind, name))
        variables = {each["name"]: each.get("value") for each in spec["initContainers"][0]["env"]}
        assert variables["MODEL_URI"].endswith("/Qwen2.5-7B-Instruct")
        assert variables["MODEL_PATH"] == charts.configuration(rendered, "inference")["model"]["path"]


@pytest.mark.parametrize(("name", "billions"), [("inference-another-model", 7.6), ("production", 3.1)])
def test_scratch_space_holds_three_times_the_weights(name: str, billions: float) -> None:
    (spec,) = charts.pod_specs(chart_goldens.render_example(name).one("Deployment", "rel-inference"))
    (tmp,) = [each for each in spec["volumes"] if each["name"] == "tmp"]
    bytes_of_weights = 2e9 * billions
    assert int(tmp["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 2**30 > 3.5 * bytes_of_weights


def test_a_service_elsewhere_is_called_where_it_is() -> None:
    rendered = chart_goldens.render_example("inference-elsewhere")
    assert charts.configuration(rendered, "rollout")["inference"]["target"] == "dns:///policy.example:443"
    assert not [each for each in rendered.all("Deployment") if each["metadata"]["name"] == "rel-inference"]
