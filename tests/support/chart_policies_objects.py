"""Policies on what stands around the pods: names, services, probes, scaling, draining, networks, hooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import charts
from chart_policy import WORKLOADS, policy, where
from charts import Object, Render
from webagent_runtime.queue import streams

LONGEST_EPISODE = 1800.0
# What stays closed when the internet is open.
CLOSED = {
    "0.0.0.0/0": {
        *("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32"),
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8"),
    },
    "::/0": {"fd00:ec2::254/128", "fc00::/7", "fe80::/10"},
}
# On pods, by their controllers.
CONTROLLERS_LABELS = {
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
}


@policy
def names_fit(rendered: Render) -> Iterator[str]:
    """63 characters for what becomes a label or a host name; pods of jobs and sets append to it."""
    longest = {"JobSet": 46, "TrainJob": 46, "TrainingRuntime": 46, "Job": 57, "StatefulSet": 52, "LeaderWorkerSet": 52}
    for obj in rendered.own():
        name = obj["metadata"]["name"]
        if len(name) > longest.get(obj["kind"], 63) or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            yield f"{where(obj)} has a name that does not fit"
        for label in obj["metadata"].get("labels", {}).values():
            if len(label) > 63:
                yield f"{where(obj)} has a label that does not fit"


@policy
def selectors_never_change(rendered: Render) -> Iterator[str]:
    """They are immutable: no version, no chart; and they match the pods."""
    for obj in rendered.own():
        selector = obj.get("spec", {}).get("selector", {})
        if obj["kind"] in {"Deployment", "StatefulSet"}:
            wanted = selector["matchLabels"]
            if wanted.keys() != {"app.kubernetes.io/name", "app.kubernetes.io/instance"}:
                yield f"{where(obj)} selects by {sorted(wanted)}"
            labels = obj["spec"]["template"]["metadata"]["labels"]
            if not wanted.items() <= labels.items():
                yield f"{where(obj)} does not select its own pods"


@policy
def services_reach_pods(rendered: Render) -> Iterator[str]:
    """Each Service selects a pod of the render that has its ports."""
    pods = [(t["metadata"]["labels"], t["spec"]) for obj in rendered.own() for _, t in charts.pod_templates(obj)]
    for service in rendered.all("Service"):
        selector = {k: v for k, v in service["spec"]["selector"].items() if k not in CONTROLLERS_LABELS}
        names = {
            port["name"]
            for labels, spec in pods
            if selector.items() <= labels.items()
            for each in spec["containers"]
            for port in each.get("ports", ())
        }
        missing = {port["targetPort"] for port in service["spec"]["ports"]} - names
        if missing:
            yield f"{where(service)} leads to no port {sorted(missing)}"


@policy
def probes_are_right_with_tls_on_and_off(rendered: Render) -> Iterator[str]:
    """gRPC probes speak plaintext: they ask the port that does. Ready by the service's name, alive by the empty one."""
    for obj in rendered.own():
        if obj["kind"] not in {"Deployment", "StatefulSet", "LeaderWorkerSet"} or obj["spec"].get("replicas") == 2:
            continue
        component = str(charts.component(obj))
        template = next(t for path, t in charts.pod_templates(obj) if "worker" not in path.lower().split("/")[-1])
        (container,) = [each for each in template["spec"]["containers"] if each["name"] == component]
        if component == "nats":
            wanted: dict[str, Any] = {"startup": 8222, "readiness": 8222, "liveness": 8222}
            asked = {kind: container.get(f"{kind}Probe", {}).get("httpGet", {}) for kind in wanted}
            found = {kind: 8222 if probe.get("port") == "monitor" else None for kind, probe in asked.items()}
        else:
            server = charts.configuration(rendered, component)["server"]
            if ("tls" in server) != ("health_port" in server):
                yield f"{where(obj)}: TLS and the plaintext health port do not go together"
            port = server.get("health_port", server["port"])
            name = next(p for p in container["ports"] if p["name"] == ("health" if "tls" in server else "grpc"))
            full = f"webagent.{component}.v1."
            wanted = {"startup": (port, True), "readiness": (port, True), "liveness": (port, False)}
            found = {}
            for kind in wanted:
                probe = container.get(f"{kind}Probe", {}).get("grpc", {})
                found[kind] = (probe.get("port"), str(probe.get("service", "")).startswith(full))
            if name["containerPort"] != port:
                yield f"{where(obj)} probes a port that the container does not name"
        if found != wanted:
            yield f"{where(obj)} probes {found}, not {wanted}"


@policy
def ports_agree(rendered: Render) -> Iterator[str]:
    """The port in the configuration is the container's and the headless Service's."""
    for component in charts.SERVICES:
        services = [each for each in rendered.all("Service") if charts.component(each) == component]
        if not services:
            continue
        server = charts.configuration(rendered, component)["server"]
        (headless,) = [s for s in services if s["metadata"]["name"].endswith("-headless")]
        ports = {port["name"]: port["port"] for port in headless["spec"]["ports"]}
        if (ports["grpc"], ports["metrics"]) != (server["port"], server["metrics_port"]):
            yield f"{component}: the Service has ports {ports}"
        if headless["spec"]["clusterIP"] != "None":
            yield f"{component}: clients that balance find one address"
        public = [each["spec"] for each in services if each["spec"].get("clusterIP") != "None"]
        if any(port["name"] in {"admin", "metrics"} for spec in public for port in spec["ports"]):
            yield f"{component}: the public Service has more than the contract's port"


@policy
def replicas_have_one_owner(rendered: Render) -> Iterator[str]:
    """No replicas where something else scales; exactly one scaler; slowly down."""
    scalers: dict[str, list[Object]] = {}
    for kind, path in (("HorizontalPodAutoscaler", "behavior"), ("ScaledObject", "advanced")):
        for each in rendered.all(kind):
            scalers.setdefault(each["spec"]["scaleTargetRef"]["name"], []).append(each)
            behavior = each["spec"].get(path, {})
            behavior = behavior.get("horizontalPodAutoscalerConfig", {}).get("behavior", behavior)
            if behavior.get("scaleDown", {}).get("stabilizationWindowSeconds", 0) < 300:
                yield f"{where(each)} scales down at once"
    for obj in rendered.own():
        if obj["kind"] in {"Deployment", "LeaderWorkerSet"}:
            owners = scalers.pop(obj["metadata"]["name"], [])
            if len(owners) > 1 or bool(owners) == ("replicas" in obj["spec"]):
                yield f"{where(obj)}: replicas have {len(owners)} scalers, and are {obj['spec'].get('replicas')}"
    if scalers:
        yield f"{sorted(scalers)} are scaled and not there"


@policy
def keda_reads_the_right_consumer(rendered: Render) -> Iterator[str]:
    """The stream, the consumer, an account, a headless endpoint; a fallback for when it cannot be read."""
    for each in rendered.all("ScaledObject"):
        if each["spec"].get("fallback", {}).get("replicas", 0) < 1:
            yield f"{where(each)} has no fallback"
        for trigger in each["spec"]["triggers"]:
            if trigger["type"] == "nats-jetstream":
                metadata = trigger["metadata"]
                if (metadata["stream"], metadata["consumer"]) != (streams.REQUESTS, streams.REQUEST_CONSUMER):
                    yield f"{where(each)} reads {metadata['stream']}/{metadata['consumer']}"
                if not metadata.get("account") or "-headless." not in metadata["natsServerMonitoringEndpoint"]:
                    yield f"{where(each)} finds no consumer's leader"
                if not all(isinstance(value, str) for value in metadata.values()):
                    yield f"{where(each)}: KEDA takes strings"


@policy
def work_may_end_before_a_pod_is_killed(rendered: Render) -> Iterator[str]:
    """Grace above the drain, env's drain above the longest episode, budgets for disruptions."""
    for obj in rendered.own():
        component = charts.component(obj)
        if obj["kind"] not in WORKLOADS or component not in charts.SERVICES or "provision" in json.dumps(obj["spec"]):
            continue
        drain = charts.configuration(rendered, component)["server"]["drain_seconds"]
        for template in (t for _, t in charts.pod_templates(obj)):
            if template["spec"]["terminationGracePeriodSeconds"] <= drain:
                yield f"{where(obj)} is killed while it drains"
            if component == "env":
                if drain < LONGEST_EPISODE:
                    yield f"{where(obj)} cuts episodes short"
                kept = template["metadata"].get("annotations", {})
                if kept.get("cluster-autoscaler.kubernetes.io/safe-to-evict") != "false":
                    yield f"{where(obj)} is evicted while it holds sessions"
        if obj["kind"] == "Deployment":
            labels = obj["spec"]["selector"]["matchLabels"]
            if not any(b["spec"]["selector"]["matchLabels"] == labels for b in rendered.all("PodDisruptionBudget")):
                yield f"{where(obj)} has no disruption budget"


@policy
def every_pod_has_a_network_policy(rendered: Render) -> Iterator[str]:
    """For both directions."""
    policies = rendered.all("NetworkPolicy")
    for obj in rendered.own():
        if obj["kind"] in WORKLOADS and "provision" not in json.dumps(obj["spec"]):
            for _, template in charts.pod_templates(obj):
                labels = template["metadata"]["labels"]
                if not any(p["spec"]["podSelector"]["matchLabels"].items() <= labels.items() for p in policies):
                    yield f"{where(obj)} has no network policy"
    for each in policies:
        if each["spec"]["policyTypes"] != ["Ingress", "Egress"]:
            yield f"{where(each)} leaves a direction open"


@policy
def networks_are_closed(rendered: Render) -> Iterator[str]:
    """No rule for everybody; metadata addresses and private ranges stay closed whatever is open."""
    for each in rendered.all("NetworkPolicy"):
        for rule in each["spec"].get("ingress") or ():
            if not rule.get("from") or {} in rule["from"]:
                yield f"{where(each)} lets everybody in"
        for rule in each["spec"].get("egress") or ():
            if not rule.get("to"):
                yield f"{where(each)} lets out to everywhere"
            for block in (peer.get("ipBlock", {}) for peer in rule.get("to", ())):
                closed = CLOSED.get(block.get("cidr"), set()) - set(block.get("except", ()))
                if closed:
                    yield f"{where(each)} opens {sorted(closed)}"


@policy
def env_reaches_no_queue(rendered: Render) -> Iterator[str]:
    """Pages are hostile: the queue lets env and evaluator not in, and monitoring only whom it names."""
    for each in rendered.all("NetworkPolicy"):
        for rule in each["spec"]["ingress"] if charts.component(each) == "nats" else ():
            ports = {port["port"] for port in rule["ports"]}
            for peer in rule["from"]:
                excluded = [e["values"] for e in peer.get("podSelector", {}).get("matchExpressions", ())]
                if 4222 in ports and "namespaceSelector" not in peer and "env" not in str(excluded):
                    yield f"{where(each)} lets env in"
                if 8222 in ports and "namespaceSelector" not in peer:
                    yield f"{where(each)} shows its monitoring to pods"


@policy
def hooks_clean_up(rendered: Render) -> Iterator[str]:
    """What a hook leaves is removed before it runs again."""
    for obj in rendered.own():
        annotations = obj["metadata"].get("annotations", {})
        policies = annotations.get("helm.sh/hook-delete-policy", "")
        if "helm.sh/hook" in annotations and "before-hook-creation" not in policies:
            yield f"{where(obj)} stays in the way of itself"


@policy
def objects_are_in_the_release_s_namespace(rendered: Render) -> Iterator[str]:
    """And have labels that say whose they are."""
    for obj in rendered.own():
        metadata = obj["metadata"]
        if metadata.get("namespace") != "default":
            yield f"{where(obj)} has no namespace"
        if metadata.get("labels", {}).get("app.kubernetes.io/instance") != charts.RELEASE:
            yield f"{where(obj)} does not say whose it is"
