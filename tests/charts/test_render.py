"""What particular values do: TLS, tokens, accelerators, the trainer's launchers, storage, alerts, dashboards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import charts
import pytest
import yaml
from chart_configs import read, services
from prometheus_client import REGISTRY as METRICS
from webagent_runtime import metrics

REGISTRY = {"image.registry": "registry.example"}
RUN = {"run": {"rl": {"suite": "miniwob", "tasks": ["click-button"], "seeds": {"first": 0, "count": 100}}}}


def container(rendered: charts.Render, kind: str = "Deployment", name: str | None = None) -> Any:
    template = next(t for _, t in charts.pod_templates(rendered.one(kind, name)))
    return template["spec"]["containers"][0]


@pytest.mark.parametrize("name", charts.CASES)
def test_every_rendered_configuration_is_one_that_the_service_takes(name: str) -> None:
    rendered = charts.case(name)
    assert services(rendered)
    for service in services(rendered):
        config = read(rendered, service)
        assert config.server.host == "0.0.0.0"
        assert config.telemetry.log_format == "json"


def test_large_and_small_numbers_arrive_as_they_were() -> None:
    assert read(charts.case("env/everything-values"), "env").sessions.max_steps == 1_000_000
    assert read(charts.case("inference/everything-values"), "inference").engine.cache_bytes == 100_000_000_000
    run = read(charts.case("trainer/job-values"), "trainer").run
    assert run.rl.optimizer.learning_rate == 1e-6
    assert run.rl.seeds.count == 9_000_000


def test_rollout_and_trainer_keep_payloads_at_one_place() -> None:
    rendered = charts.case("webagent/everything-values")
    rollout, trainer = (read(rendered, name) for name in ("rollout", "trainer"))
    assert rollout.payloads.uri == trainer.run.payloads.uri == "s3://bucket/payloads"
    assert rollout.queue.url == trainer.queue.url


def stores(**values: Any) -> tuple[str, str, str | None]:
    """Where rollout puts payloads, where the trainer reads them, and where it copies policies to."""
    run = {"trainer.mode": "job", "trainer.run": {"bc": {"demonstrations": "/a"}, "publish": {"keep": 5}}}
    rendered = charts.render("webagent", values={"global.imageRegistry": "registry.example", **run, **values})
    rollout, trainer = (read(rendered, name) for name in ("rollout", "trainer"))
    assert trainer.run.publish.keep == 5
    return rollout.payloads.uri, trainer.run.payloads.uri, trainer.run.publish.uri


def test_policies_and_payloads_go_through_the_object_store_unless_something_else_is_shared() -> None:
    beside = "jetstream://rel-nats:4222/payloads"
    assert stores() == (beside, beside, "jetstream://rel-nats:4222/policies")
    directory = "file:///var/lib/webagent/payloads"
    assert stores(**{"global.sharedClaim": "shared"}) == (directory, directory, None)
    bucket = {"global.payloadsUri": "s3://b/payloads", "global.policiesUri": "s3://b/policies"}
    assert stores(**bucket) == ("s3://b/payloads", "s3://b/payloads", "s3://b/policies")
    # A queue that asks who one is lets nobody in by its address alone.
    with pytest.raises(charts.HelmError, match=r"payloads: .* name payloads.uri or global.payloadsUri"):
        stores(**{"rollout.queue.urlSecret.name": "url"})


def test_the_trainer_s_model_is_written_by_the_image_that_carries_it() -> None:
    (spec,) = charts.pod_specs(charts.case("webagent/default-values").one("StatefulSet", "rel-trainer"))
    (first,) = spec["initContainers"]
    assert first["image"] == "registry.example/webagent/inference:0.1.0"
    assert first["command"] == ["python", "-m", "webagent_inference.prepare"]
    assert {"name": "storage", "mountPath": "/var/lib/webagent"} in first["volumeMounts"]


@pytest.mark.parametrize("mode", ["service", "job"])
def test_a_trainer_s_model_is_copied_from_its_address_in_either_mode(mode: str) -> None:
    model = {"model.path": "/var/lib/webagent/models/base", "model.uri": "s3://b/base", "model.prepare": True}
    given = REGISTRY | RUN | model | {"mode": mode, "payloads.existingSecret": "s3"}
    (spec,) = charts.pod_specs(charts.render("trainer", values=given).one("Job" if mode == "job" else "StatefulSet"))
    (first,) = spec["initContainers"]
    assert {"name": "MODEL_URI", "value": "s3://b/base"} in first["env"]
    assert first["envFrom"] == [{"secretRef": {"name": "s3"}}]


def test_tls_moves_probes_and_clients() -> None:
    rendered = charts.case("webagent/everything-values")
    rollout = read(rendered, "rollout")
    assert rollout.server.tls.client_ca_file == Path("/etc/webagent/tls/ca.crt")
    assert rollout.env.client.tls.server_name == "rel-env"
    assert rollout.env.client.token_file == Path("/etc/webagent/client/env")
    certificate = rendered.one("Certificate", "rel-env")
    assert "rel-env" in certificate["spec"]["dnsNames"]
    assert "client auth" in certificate["spec"]["usages"]
    env = container(rendered, name="rel-env")
    assert env["readinessProbe"]["grpc"]["port"] == 50081
    plain = container(charts.case("env/default-values"))
    assert plain["readinessProbe"]["grpc"] == {"port": 50051, "service": "webagent.env.v1.EnvironmentService"}


@pytest.mark.parametrize("face", [True, False])
def test_inference_s_certificate_names_every_service_that_serves_it(face: bool) -> None:
    tls = {"tls.enabled": True, "tls.certManager.issuerRef": {"name": "ca"}, "face.enabled": face}
    rendered = charts.render("inference", values=REGISTRY | tls)
    services = {each["metadata"]["name"] for each in rendered.all("Service")}
    assert "rel-inference-admin" in services
    assert ("rel-inference-face" in services) == face
    named = rendered.one("Certificate")["spec"]["dnsNames"]
    assert {name for name in named if "." not in name} == services
    assert {f"{name}.default.svc" for name in services} <= set(named)


def test_env_tells_clients_the_address_of_its_own_pod() -> None:
    variables = {each["name"]: each for each in container(charts.case("env/default-values"))["env"]}
    assert variables["POD_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert variables["WEBAGENT_ENV__SERVER__ADVERTISE"]["value"] == "$(POD_IP)"


def test_tokens_given_inline_become_a_secret() -> None:
    rendered = charts.render("env", values=REGISTRY | {"auth.tokens": {"abc": ["env"]}})
    (text,) = rendered.one("Secret")["data"].values()
    import base64

    assert yaml.safe_load(base64.b64decode(text)) == {"abc": ["env"]}
    assert charts.configuration(rendered, "env")["server"]["tokens_file"] == "/etc/webagent/tokens/tokens.yaml"
    assert not charts.case("env/everything-values").all("Secret")


def test_a_queue_s_password_is_never_in_a_configuration() -> None:
    rendered = charts.case("rollout/keda-values")
    assert "url" not in charts.configuration(rendered, "rollout")["queue"]
    variable = next(each for each in container(rendered)["env"] if each["name"] == "WEBAGENT_ROLLOUT__QUEUE__URL")
    assert variable["valueFrom"]["secretKeyRef"]["name"] == rendered.one("Secret")["metadata"]["name"]


def test_a_digest_wins_over_a_tag_and_a_tag_over_the_version() -> None:
    digest = "sha256:" + "0" * 64
    for values, image in [
        ({}, "registry.example/webagent/env:0.1.0"),
        ({"image.tag": "1.2"}, "registry.example/webagent/env:1.2"),
        ({"image.tag": "1.2", "image.digest": digest}, f"registry.example/webagent/env@{digest}"),
        ({"global.imageRegistry": "other.example"}, "registry.example/webagent/env:0.1.0"),
    ]:
        assert container(charts.render("env", values=REGISTRY | values))["image"] == image


@pytest.mark.parametrize("major", [3, 4])
def test_accelerators_are_as_many_as_the_engine_shards_over(major: int) -> None:
    def limits(**values: Any) -> Any:
        given = REGISTRY | {key.replace("__", "."): value for key, value in values.items()}
        return container(charts.render("inference", values=given, major=major))["resources"]["limits"]

    assert limits() == {"memory": "12Gi"}
    assert limits(accelerator__kind="nvidia")["nvidia.com/gpu"] == "1"
    config = {"engine": {"tensor_parallel": 4}}
    assert limits(accelerator__kind="nvidia", config=config)["nvidia.com/gpu"] == "4"
    assert limits(accelerator__kind="nvidia", accelerator__count=2, config=config)["nvidia.com/gpu"] == "2"
    assert limits(accelerator__kind="amd")["amd.com/gpu"] == "1"
    part = "nvidia.com/mig-3g.40gb"
    assert limits(accelerator__kind="nvidia", accelerator__resourceName=part)[part] == "1"


def test_loading_a_model_may_take_longer_than_liveness_allows() -> None:
    probes = container(charts.case("inference/default-values"))
    startup, liveness = probes["startupProbe"], probes["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 1200
    assert startup["grpc"]["service"].endswith("InferenceService")
    assert liveness["grpc"]["service"] == ""


def test_a_probe_can_be_replaced_as_a_whole() -> None:
    custom = {"tcpSocket": {"port": 50051}}
    assert (
        container(charts.render("env", values=REGISTRY | {"probes.liveness.custom": custom}))["livenessProbe"] == custom
    )


def test_administration_is_open_to_nobody_unless_named() -> None:
    def peers(**values: Any) -> Any:
        rules = charts.render("inference", values=REGISTRY | values).one("NetworkPolicy")["spec"]["ingress"]
        (rule,) = [rule for rule in rules if rule["ports"][0]["port"] == 50062]
        return rule["from"]

    (nobody,) = peers()
    assert "webagent/admin-client-of" in nobody["podSelector"]["matchLabels"]
    named = [{"podSelector": {"matchLabels": {"role": "operator"}}}]
    assert peers(**{"networkPolicy.adminClients": named}) == named


def test_metrics_are_open_to_nobody_unless_named() -> None:
    rules = charts.case("env/default-values").one("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {50051}


def test_traces_may_leave_to_the_collector_s_port() -> None:
    def ports(**values: Any) -> set[Any]:
        rules = charts.render("env", values=REGISTRY | values).one("NetworkPolicy")["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    assert ports() == {53}
    assert ports(**{"global.otlpEndpoint": "http://otel:4318"}) == {53, 4318}
    assert ports(**{"telemetry.otlpEndpoint": "https://otel.example"}) == {53, 4317}


EXTERNAL = "global.nats.external"


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"queue.url": "nats://a:4333,nats://b:4334,tls://c"}, [4333, 4334, 4222]),
        ({"queue.url": "nats://a:4333,nats://b:4333"}, [4333]),
        ({"queue.url": "wss://queue.example,ws://b:8080/path,ws://c"}, [443, 8080, 80]),
        ({"queue.url": "nats://[::1]:4333,nats://[::1]"}, [4333, 4222]),
        ({f"{EXTERNAL}.url": "tls://nats.example:4443"}, [4443]),
        ({f"{EXTERNAL}.url": "tls://nats.example:4443", "queue.urlSecret.name": "url"}, [4443]),
        ({"queue.urlSecret.name": "url"}, [4222]),
        ({f"{EXTERNAL}.ports": [4443, 4444], "queue.urlSecret.name": "url"}, [4443, 4444]),
    ],
    ids=str,
)
def test_a_queue_elsewhere_is_reached_at_its_own_ports(values: dict[str, Any], ports: list[int]) -> None:
    payloads = {"payloads.uri": "s3://b/payloads"}
    rules = charts.render("rollout", values=REGISTRY | payloads | values).one("NetworkPolicy")["spec"]["egress"]
    (rule,) = [rule for rule in rules if rule["to"] == [{"namespaceSelector": {}}] and rule["ports"][0]["port"] != 53]
    assert rule["ports"] == [{"port": port, "protocol": "TCP"} for port in ports]


def test_a_training_job_is_indexed_and_finds_its_first_pod() -> None:
    rendered = charts.case("trainer/nodes-job-values")
    job = rendered.one("Job")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["podFailurePolicy"]["rules"][0] == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    headless = rendered.one("Service", "rel-trainer-headless")
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert spec["template"]["spec"]["subdomain"] == "rel-trainer-headless"
    (command,) = [line for line in container(rendered, "Job")["command"] if "rdzv" in line]
    assert f"--rdzv-endpoint={job['metadata']['name']}-0.rel-trainer-headless.default.svc:29400" in command
    assert "--nnodes=2 --nproc-per-node=8" in command
    assert container(rendered, "Job")["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_a_training_job_ends_at_a_failure_that_another_try_would_repeat() -> None:
    job = charts.case("trainer/job-values").one("Job")["spec"]
    (trainer,) = job["template"]["spec"]["containers"]
    ends = {"containerName": trainer["name"], "operator": "In", "values": [3]}
    assert {"action": "FailJob", "onExitCodes": ends} in job["podFailurePolicy"]["rules"]


@pytest.mark.parametrize(
    "values", [{"nodes": 2, "storage.existingClaim": "c"}, {"ranksPerNode": 2}, {"launcher": "trainjob"}]
)
def test_torchrun_gives_ranks_as_long_to_end_as_the_trainer_drains(values: dict[str, Any]) -> None:
    rendered = charts.render("trainer", values=REGISTRY | RUN | {"drainSeconds": 77} | values)
    kind = "TrainingRuntime" if "launcher" in values else "Job"
    assert "--shutdown-timeout=77" in json.dumps(rendered.one(kind))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nodes-job-values", "batch.kubernetes.io/job-completion-index"),
        ("service-nodes-values", "apps.kubernetes.io/pod-index"),
    ],
)
def test_of_several_pods_callers_reach_the_first_and_all_have_names(name: str, label: str) -> None:
    rendered = charts.case(f"trainer/{name}")
    assert rendered.one("Service", "rel-trainer")["spec"]["selector"][label] == "0"
    assert label not in rendered.one("Service", "rel-trainer-headless")["spec"]["selector"]


def test_another_configuration_is_another_job_of_the_same_run() -> None:
    first = charts.render("trainer", values=REGISTRY | RUN)
    again = charts.render("trainer", values=REGISTRY | RUN)
    other = charts.render("trainer", values=REGISTRY | RUN | {"job.backoffLimit": 1})
    name = first.one("Job")["metadata"]["name"]
    assert name == again.one("Job")["metadata"]["name"] != other.one("Job")["metadata"]["name"]
    directories = {charts.configuration(each, "trainer")["run"]["run_directory"] for each in (first, other)}
    assert directories == {"/var/lib/webagent/runs/run"}


def test_jobset_and_kubeflow_hold_the_same_pods() -> None:
    jobset = charts.case("trainer/nodes-jobset-values").one("JobSet")
    runtime = charts.case("trainer/nodes-trainjob-values").one("TrainingRuntime")
    job = charts.case("trainer/nodes-trainjob-values").one("TrainJob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 2, "torch": {"numProcPerNode": 8}}
    (from_set,) = jobset["spec"]["replicatedJobs"]
    (from_runtime,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    name = jobset["metadata"]["name"]
    trainer = from_set["template"]["spec"]["template"]["spec"]["containers"][0]
    (command,) = [each for each in trainer["command"] if "rdzv" in each]
    assert f"--rdzv-endpoint={name}-trainer-0-0.{name}.default.svc:29400" in command
    # The container that Kubeflow's torch policy gives its variables to.
    assert from_runtime["template"]["spec"]["template"]["spec"]["containers"][0]["name"] == "node"
    for each in (from_set, from_runtime):
        assert each["template"]["spec"]["backoffLimit"] == 0


def test_only_a_waiting_trainer_has_a_disruption_budget() -> None:
    assert not charts.case("trainer/job-values").all("PodDisruptionBudget")
    assert charts.case("trainer/service-values").all("PodDisruptionBudget")


def test_a_waiting_trainer_is_a_stateful_set_of_one_world() -> None:
    rendered = charts.case("trainer/service-nodes-values")
    spec = rendered.one("StatefulSet")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (
        2,
        "Parallel",
        "rel-trainer-headless",
    )
    (command,) = [each for each in container(rendered, "StatefulSet")["command"] if "rdzv" in each]
    assert "--rdzv-endpoint=rel-trainer-0.rel-trainer-headless.default.svc:29400" in command
    assert "run" not in charts.configuration(rendered, "trainer")


def test_claims_stay_when_a_release_goes() -> None:
    for name in ("trainer/job-values", "webagent/default-values", "webagent/everything-values"):
        for claim in charts.case(name).all("PersistentVolumeClaim"):
            assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claims("webagent/default-values") == {"rel-trainer"}
    assert "rel-shared" in claims("webagent/everything-values")


def claims(case: str) -> set[str]:
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for obj in charts.case(case).objects
        for spec in charts.pod_specs(obj)
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    }


def test_each_choice_of_a_sandbox_is_rendered() -> None:
    pods = {}
    for chosen in ("default", "userns", "sandbox"):
        rendered = charts.case(f"env/{chosen}-values")
        (spec,) = charts.pod_specs(rendered.one("Deployment"))
        own = charts.configuration(rendered, "env")["browser"]["sandbox"]
        pods[chosen] = (own, spec.get("hostUsers", True), spec["securityContext"]["seccompProfile"])
    restricted = {"type": "RuntimeDefault"}
    assert pods["default"] == (False, True, restricted)
    assert pods["userns"] == (False, False, restricted)
    assert pods["sandbox"] == (True, True, {"type": "Localhost", "localhostProfile": "profiles/chromium.json"})


def test_the_queue_is_provisioned_by_a_job_or_a_hook() -> None:
    plain = charts.case("rollout/default-values").one("Job")
    assert "annotations" not in plain["metadata"]
    hook = charts.case("rollout/everything-values").one("Job")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    # A hook runs before anything of the release is there.
    for spec in charts.pod_specs(hook):
        assert "serviceAccountName" not in spec
        secrets = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
        assert secrets == {"admin-creds", "queue-tls"}
    (only,) = charts.containers(hook)
    variables = {each["name"]: each for each in only["env"]}
    assert (
        json.loads(variables["WEBAGENT_PROVISION__QUEUE"]["value"])["credentials_file"]
        == "/etc/webagent/queue/admin.creds"
    )
    assert variables["WEBAGENT_PROVISION__QUEUE__URL"]["valueFrom"]["secretKeyRef"] == {
        "name": "queue-admin",
        "key": "url",
    }


def test_names_fit_whatever_the_release_is_called() -> None:
    from chart_policies_objects import names_fit

    values = charts.CHARTS / "webagent" / "ci" / "everything-values.yaml"
    text = charts.helm(3, "template", "r" * 53, charts.CHARTS / "webagent", "--values", values)
    assert not list(names_fit(charts.Render("long", tuple(charts.parse(text)))))


def test_alerts_and_dashboards_ask_for_metrics_that_exist() -> None:
    known = {sample.name for metric in METRICS.collect() for sample in metric.samples} | {
        name for metric in METRICS.collect() for name in (metric.name, f"{metric.name}_total", f"{metric.name}_bucket")
    }
    assert metrics.DEAD_LETTERS
    rendered = charts.case("webagent/everything-values")
    expressions = [rule["expr"] for rule in rules(rendered)]
    expressions += [panel["targets"][0]["expr"] for board in boards(rendered) for panel in board["panels"]]
    for expression in expressions:
        assert set(re.findall(r"webagent_\w+", expression)) <= known, expression
        assert expression.count("(") == expression.count(")"), expression


def rules(rendered: charts.Render) -> list[Any]:
    groups = [group for each in rendered.all("PrometheusRule") for group in each["spec"]["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def boards(rendered: charts.Render) -> list[Any]:
    maps = [each["data"] for each in rendered.all("ConfigMap") if each["metadata"]["name"].endswith("-dashboard")]
    return [json.loads(text) for data in maps for text in data.values()]


def test_every_service_has_a_dashboard_of_its_own() -> None:
    assert len({board["uid"] for board in boards(charts.case("webagent/everything-values"))}) == len(charts.SERVICES)


def test_alerts_cover_what_can_go_wrong() -> None:
    text = json.dumps(rules(charts.case("webagent/everything-values")))
    for metric in ("dead_letters", "oldest_pending_seconds", "invalid_share", "session_capacity", "served_version"):
        assert f"webagent_{metric}" in text
