"""What may be asked of a chart: typing errors, contradictions and weaker security are refused before it renders."""

from __future__ import annotations

from typing import Any

import charts
import pytest

REGISTRY = {"image.registry": "registry.example"}
RUN = {"run": {"rl": {"suite": "miniwob", "tasks": ["click-button"], "seeds": {"first": 0, "count": 100}}}}
TLS = {"tls.enabled": True, "tls.existingSecret": "tls"}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("env", {"replicas": 2}, "replicas"),
    ("env", {"image.registy": "a"}, "registy"),
    ("env", {"image.tag": "latest"}, "tag"),
    ("env", {"image.digest": "sha256:abc"}, "digest"),
    ("env", {"config": {"sessions": {"capasity": 2}}}, "capasity"),
    ("env", {"config": {"sessions": {"capacity": 0}}}, "capacity"),
    ("env", {"config": {"server": {"port": 1}}}, "port"),
    ("env", {"config": {"server": {"tls": {}}}}, "tls"),
    ("env", {"autoscaling.enabled": True, "keda.enabled": True}, "not"),
    ("env", {"podSecurityContext.runAsNonRoot": False}, "runAsNonRoot"),
    ("env", {"podSecurityContext.runAsUser": 0}, "runAsUser"),
    ("env", {"podSecurityContext.seccompProfile.type": "Unconfined"}, "seccompProfile"),
    ("env", {"securityContext.privileged": True}, "privileged"),
    ("env", {"securityContext.allowPrivilegeEscalation": True}, "allowPrivilegeEscalation"),
    ("env", {"securityContext.capabilities.add": ["SYS_ADMIN"]}, "add"),
    ("env", {"securityContext.capabilities.drop": []}, "drop"),
    ("env", {"hostNetwork": True}, "hostNetwork"),
    ("env", {"hostUsers": True}, "hostUsers"),
    ("env", {"sandbox": "off"}, "sandbox"),
    ("env", {"config": {"browser": {"sandbox": True}}}, "sandbox"),
    ("env", {"resources.requests.memory": None}, "memory"),
    ("env", {"resources.limits.memory": "much"}, "memory"),
    ("env", {"service.port": 70000}, "port"),
    ("env", {"telemetry.logLevel": "loud"}, "logLevel"),
    ("env", {"queue.url": "nats://nats:4222"}, "queue"),
    ("inference", {"config": {"engine": {"tensor_parallell": 2}}}, "tensor_parallell"),
    ("inference", {"accelerator.kind": "gpu"}, "kind"),
    ("inference", {"storage.accessModes": ["ReadWriteOften"]}, "accessModes"),
    ("inference", {"multinode.enabled": True, "multinode.size": 1}, "size"),
    ("rollout", {"queue.url": "nats:4222"}, "url"),
    ("rollout", {"payloads.uri": "bucket"}, "uri"),
    ("rollout", {"config": {"payloads": {"uri": "file:///a"}}}, "payloads"),
    ("trainer", {"launcher": "mpi"}, "launcher"),
    ("trainer", {**RUN, "run.rl.group_sise": 2}, "group_sise"),
    ("trainer", {**RUN, "run.run_directory": "/a"}, "run_directory"),
    ("trainer", {"runId": "a b"}, "runId"),
    ("webagent", {"nats.privileged": True}, "privileged"),
    ("webagent", {"nats.image.tag": "latest"}, "tag"),
    ("webagent", {"rollouts.enabled": True}, "rollouts"),
    ("webagent", {"rollout.replicaCounts": 2}, "replicaCounts"),
    ("webagent", {"env.config": {"sessions": {"capasity": 2}}}, "capasity"),
    ("webagent", {"global.nats.external.url": "nats://user:word@nats:4222"}, "url"),
]

CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("env", {"image.registry": ""}, "build and push the images first"),
    ("env", {"drainSeconds": 100, "terminationGracePeriodSeconds": 50}, "would be killed"),
    ("env", {"keda.enabled": True}, "needs keda.triggers"),
    ("env", {"tls.enabled": True}, "name tls.existingSecret"),
    ("env", {"resources": None}, "must name cpu and memory"),
    ("inference", {"multinode.enabled": True}, "needs multinode.workerCommand"),
    ("trainer", {}, "mode job needs run"),
    ("trainer", {**RUN, "model.prepare": True, "model.path": "/m/Qwen2.5-7B"}, "would write SmolLM2-135M-Instruct"),
    ("inference", {"model.path": "/m/Qwen2.5-7B"}, "would write SmolLM2-135M-Instruct"),
    ("rollout", {"queue.url": "nats://a:b@nats:4222", "queue.provision.hook": True}, "name queue.urlSecret"),
    ("trainer", {**RUN, "nodes": 2}, "must hold ReadWriteMany"),
    ("webagent", {"global.imageRegistry": ""}, "build and push the images first"),
    ("webagent", {"global.nats.external.url": "nats://elsewhere:4222"}, "exclude each other"),
    ("webagent", {"sharedStorage.create": True}, "name the claim by global.sharedClaim"),
    ("webagent", {"nats.resources": None}, "must name cpu and memory"),
]  # fmt: skip


def given(chart: str, values: dict[str, Any]) -> dict[str, Any]:
    return ({"global.imageRegistry": "registry.example"} if chart == "webagent" else REGISTRY) | values


@pytest.mark.parametrize(("chart", "values", "word"), REFUSED, ids=[f"{c}-{'-'.join(v)}" for c, v, _ in REFUSED])
def test_the_schema_refuses(chart: str, values: dict[str, Any], word: str) -> None:
    with pytest.raises(charts.HelmError, match="schema") as refused:
        charts.render(chart, values=given(chart, values))
    assert word in str(refused.value)


@pytest.mark.parametrize(("chart", "values", "sentence"), CONTRADICTIONS, ids=[s for _, _, s in CONTRADICTIONS])
def test_a_contradiction_is_refused_with_what_to_do(chart: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(charts.HelmError, match=sentence):
        charts.render(chart, values=given(chart, values))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"image.tag": "latest"}, "names no version"),
        ({"resources.requests": None}, "must name cpu and memory"),
        ({"autoscaling.enabled": True, "keda.enabled": True}, "exclude each other"),
    ],
)
def test_what_matters_is_refused_without_the_schema_too(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(charts.HelmError, match=sentence):
        charts.template("env", values=REGISTRY | values, options=("--skip-schema-validation",))


def test_an_umbrella_of_one_s_own_may_hold_the_charts() -> None:
    """The schema allows what Helm and an umbrella add: global, enabled, and the library."""
    rendered = charts.render("webagent", values={"global.imageRegistry": "registry.example", "global.anything": 1})
    assert {each["metadata"]["name"] for each in rendered.all("Deployment")} == {
        f"rel-{name}" for name in ("env", "inference", "evaluator", "rollout")
    }


@pytest.mark.parametrize(
    "chart", ["rollout", *(pytest.param(name, marks=pytest.mark.slow) for name in charts.SERVICES)]
)
def test_a_condition_leaves_a_chart_out(chart: str) -> None:
    values = {"global.imageRegistry": "registry.example", f"{chart}.enabled": False}
    rendered = charts.render("webagent", values=values)
    left = {each["metadata"]["labels"].get("app.kubernetes.io/component") for each in rendered.objects}
    assert left == {*charts.SERVICES, "nats", "test"} - {chart}


def test_env_alone_needs_no_queue_no_gpu_and_no_crd() -> None:
    rendered = charts.case("env/default-values")
    builtin = {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"}
    assert {each["apiVersion"] for each in rendered.objects} == builtin
    text = str(rendered.objects)
    assert "nats" not in text
    assert ".com/gpu" not in text
