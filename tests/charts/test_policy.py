"""Every render of every chart holds every policy, and a render that breaks one is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import charts
import pytest
from chart_policies import POLICIES
from charts import Object, Render

BROKEN = "webagent/everything-values"


@pytest.mark.parametrize("name", POLICIES)
def test_every_render_holds(name: str) -> None:
    found = [f"{case}: {problem}" for case in charts.CASES for problem in POLICIES[name](charts.case(case))]
    assert not found, "\n".join(found)


def template(render: Render, kind: str = "Deployment", name: str = "rel-env") -> Any:
    return render.one(kind, name)["spec"]["template"]


def pod(render: Render) -> Any:
    return template(render)["spec"]


def container(render: Render) -> Any:
    return pod(render)["containers"][0]


def policy_of(render: Render, name: str = "rel-env") -> Any:
    return render.one("NetworkPolicy", name)["spec"]


def drop(render: Render, kind: str) -> Render:
    return Render(render.name, tuple(each for each in render.objects if each["kind"] != kind))


def seccomp(render: Render) -> Any:
    return pod(render)["securityContext"]["seccompProfile"]


def shared(render: Render) -> Any:
    return render.one("PersistentVolumeClaim", "rel-shared")["spec"]


def probe_over_tls(render: Render) -> None:
    container(render)["readinessProbe"]["grpc"]["port"] = 50051


def match_labels(render: Render) -> Any:
    return render.one("Deployment", "rel-env")["spec"]["selector"]["matchLabels"]


def trigger(render: Render) -> Any:
    return render.one("ScaledObject", "rel-rollout")["spec"]["triggers"][0]["metadata"]


def let_into_nats(render: Render) -> Any:
    return policy_of(render, "rel-nats")["ingress"]


def alive_when_ready(render: Render) -> None:
    container(render)["livenessProbe"]["grpc"].update(service="webagent.env.v1.EnvironmentService")


def publish_admin(render: Render) -> None:
    render.one("Service", "rel-inference")["spec"]["ports"].append({"name": "admin", "port": 50062})


def leave_the_test(render: Render) -> None:
    render.one("Pod", "rel-env-test")["metadata"]["annotations"].pop("helm.sh/hook-delete-policy")


def open_metadata(render: Render) -> None:
    for rule in policy_of(render)["egress"]:
        for peer in rule.get("to", ()):
            if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0":
                peer["ipBlock"]["except"].remove("169.254.0.0/16")


Break = Callable[[Render], Any]
BREAKS: list[tuple[str, Break]] = [
    ("pods_are_restricted", lambda r: pod(r)["securityContext"].update(runAsNonRoot=False)),
    ("pods_are_restricted", lambda r: pod(r)["securityContext"].pop("seccompProfile")),
    ("pods_are_restricted", lambda r: container(r)["securityContext"].update(privileged=True)),
    ("pods_are_restricted", lambda r: container(r)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"])),
    ("pods_are_restricted", lambda r: container(r)["securityContext"].pop("readOnlyRootFilesystem")),
    ("chromium_has_the_sandbox_that_was_chosen", lambda r: seccomp(r).update(type="Localhost", localhostProfile="a")),
    ("nothing_belongs_to_the_host", lambda r: pod(r).update(hostIPC=True)),
    ("nothing_belongs_to_the_host", lambda r: pod(r)["volumes"].append({"name": "x", "hostPath": {"path": "/"}})),
    ("nothing_belongs_to_the_host", lambda r: container(r)["ports"].append({"containerPort": 1, "hostPort": 1})),
    ("containers_say_what_they_need", lambda r: container(r)["resources"]["requests"].pop("memory")),
    ("containers_say_what_they_need", lambda r: container(r)["resources"].pop("limits")),
    ("images_name_one_version", lambda r: container(r).update(image="registry.example/webagent/env:latest")),
    ("images_name_one_version", lambda r: container(r).update(image="registry.example/webagent/env")),
    ("no_pod_has_a_token_or_a_role", lambda r: pod(r).pop("automountServiceAccountToken")),
    ("no_pod_has_a_token_or_a_role", lambda r: r.all("Service")[0].update(kind="Role")),
    ("every_service_has_an_account_of_its_own", lambda r: pod(r).pop("serviceAccountName")),
    ("names_fit", lambda r: r.one("Deployment", "rel-env")["metadata"].update(name="x" * 64)),
    ("names_fit", lambda r: r.all("Job")[-1]["metadata"].update(name="x" * 60)),
    ("selectors_never_change", lambda r: match_labels(r).update(v="1")),
    ("selectors_never_change", lambda r: template(r)["metadata"]["labels"].pop("app.kubernetes.io/name")),
    ("services_reach_pods", lambda r: r.one("Service", "rel-env")["spec"]["selector"].update(a="b")),
    ("services_reach_pods", lambda r: r.one("Service", "rel-env")["spec"]["ports"][0].update(targetPort="web")),
    ("volumes_and_mounts_agree", lambda r: container(r)["volumeMounts"].append({"name": "x", "mountPath": "/x"})),
    ("volumes_and_mounts_agree", lambda r: pod(r)["volumes"].append({"name": "x", "emptyDir": {}})),
    ("volumes_and_mounts_agree", lambda r: container(r)["volumeMounts"][0].update(mountPath="/etc/webagent")),
    ("probes_are_right_with_tls_on_and_off", probe_over_tls),
    ("probes_are_right_with_tls_on_and_off", alive_when_ready),
    ("probes_are_right_with_tls_on_and_off", lambda r: container(r).pop("startupProbe")),
    ("ports_agree", lambda r: r.one("Service", "rel-env-headless")["spec"]["ports"][0].update(port=1)),
    ("ports_agree", lambda r: r.one("Service", "rel-env-headless")["spec"].update(clusterIP="")),
    ("ports_agree", publish_admin),
    ("replicas_have_one_owner", lambda r: r.one("Deployment", "rel-rollout")["spec"].update(replicas=1)),
    ("replicas_have_one_owner", lambda r: r.one("ScaledObject", "rel-env")["spec"]["scaleTargetRef"].update(name="x")),
    ("replicas_have_one_owner", lambda r: r.one("ScaledObject", "rel-env")["spec"].pop("advanced")),
    ("keda_reads_the_right_consumer", lambda r: r.one("ScaledObject", "rel-rollout")["spec"].pop("fallback")),
    ("keda_reads_the_right_consumer", lambda r: trigger(r).pop("account")),
    ("keda_reads_the_right_consumer", lambda r: trigger(r).update(consumer="x")),
    ("work_may_end_before_a_pod_is_killed", lambda r: pod(r).update(terminationGracePeriodSeconds=30)),
    ("work_may_end_before_a_pod_is_killed", lambda r: template(r)["metadata"].pop("annotations")),
    ("work_may_end_before_a_pod_is_killed", lambda r: drop(r, "PodDisruptionBudget")),
    ("every_pod_has_a_network_policy", lambda r: drop(r, "NetworkPolicy")),
    ("every_pod_has_a_network_policy", lambda r: policy_of(r).update(policyTypes=["Ingress"])),
    ("networks_are_closed", lambda r: policy_of(r)["ingress"].append({"ports": [{"port": 9464}]})),
    ("networks_are_closed", lambda r: policy_of(r)["egress"].append({})),
    ("networks_are_closed", open_metadata),
    ("env_reaches_no_queue", lambda r: let_into_nats(r)[0]["from"][0]["podSelector"].pop("matchExpressions")),
    ("env_reaches_no_queue", lambda r: let_into_nats(r)[1]["from"].append({"podSelector": {}})),
    ("a_claim_of_one_node_has_one_workload", lambda r: shared(r).update(accessModes=["ReadWriteOnce"])),
    ("secrets_are_secret", lambda r: container(r)["env"].append({"name": "A", "value": "nats://user:word@nats:4222"})),
    ("secrets_are_secret", lambda r: r.one("ConfigMap", "rel-env")["data"].update(a="password: b")),
    ("a_changed_configuration_restarts_pods", lambda r: template(r)["metadata"]["annotations"].pop("checksum/config")),
    ("hooks_clean_up", leave_the_test),
    ("objects_are_in_the_release_s_namespace", lambda r: r.one("Deployment", "rel-env")["metadata"].pop("namespace")),
    ("objects_are_in_the_release_s_namespace", lambda r: r.one("Deployment", "rel-env")["metadata"].pop("labels")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "break_it"), BREAKS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(BREAKS)]
)
def test_a_break_is_noticed(name: str, break_it: Break) -> None:
    render = copy.deepcopy(charts.case(BROKEN))
    assert not list(POLICIES[name](render))
    changed = break_it(render)
    render = changed if isinstance(changed, Render) else render
    try:
        found = list(POLICIES[name](render))
    except (KeyError, AssertionError, StopIteration) as error:
        found = [repr(error)]
    assert found


def test_every_policy_is_broken_once() -> None:
    assert {name for name, _ in BREAKS} == POLICIES.keys()


def users(objects: tuple[Object, ...], name: str) -> list[Any]:
    specs = [spec for obj in objects for spec in charts.pod_specs(obj)]
    every = [each for spec in specs for each in (*spec.get("initContainers", ()), *spec["containers"])]
    return [each for each in every if each["name"] == name]


@pytest.mark.parametrize("chart", charts.SERVICES)
def test_what_a_user_passes_in_goes_through_unchanged(chart: str) -> None:
    """Even what no chart of ours would render."""
    name = "nodes-job-values" if chart == "trainer" else "everything-values"
    values = charts.parse((charts.CHARTS / chart / "ci" / f"{name}.yaml").read_text())[0]
    objects = charts.case(f"{chart}/{name}").objects
    assert values["sidecars"][0] in users(objects, "side")
    assert values["initContainers"][0] in users(objects, "first")
    assert values["extraObjects"][0] in objects
    (spec,) = [s for obj in objects for s in charts.pod_specs(obj) if any(c["name"] == "side" for c in s["containers"])]
    (main,) = [each for each in spec["containers"] if each["name"] == chart]
    assert values["extraVolumes"][0] in spec["volumes"]
    assert values["extraVolumeMounts"][0] in main["volumeMounts"]
    assert values["extraEnv"][0] in main["env"]
    assert values["extraEnvFrom"][0] in main["envFrom"]
    assert values["lifecycle"] == main["lifecycle"]
    assert main["args"][-1] == values["extraArgs"][0]
    assert values["affinity"] == spec["affinity"]
    assert spec["priorityClassName"] == "high"
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "agents"}
    assert values["tolerations"][0] in spec["tolerations"]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "more"}]
    assert "@sha256:" in main["image"]
