"""What holds for every render of every chart: each policy names the problems that it finds, none if it holds.

What a user passes in (containers, volumes, objects) is left out: it goes through as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import charts
from charts import Object, Render
from webagent_runtime.queue import streams

Policy = Callable[[Render], Iterator[str]]
POLICIES: dict[str, Policy] = {}
WORKLOADS = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Job", "JobSet", "TrainingRuntime")
METADATA_ADDRESSES = ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32")
PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8")
LONGEST_EPISODE = 1800.0


def policy(function: Policy) -> Policy:
    """Registers a policy under its name."""
    POLICIES[function.__name__] = function
    return function


def _where(obj: Object, container: Object | None = None) -> str:
    name = f"{obj['kind']} {obj['metadata']['name']}"
    return f"{name}: {container['name']}" if container else name


@policy
def pods_are_restricted(rendered: Render) -> Iterator[str]:
    """Pod Security restricted."""
    for obj in rendered.own():
        for spec in charts.pod_specs(obj):
            context = spec.get("securityContext", {})
            if context.get("runAsNonRoot") is not True or context.get("runAsUser", 1) == 0:
                yield f"{_where(obj)} may run as root"
            if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
                yield f"{_where(obj)} has no seccomp profile"
        for each in charts.containers(obj):
            context = each.get("securityContext", {})
            if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
                yield f"{_where(obj, each)} may escalate its privileges"
            if context.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{_where(obj, each)} keeps capabilities"
            if context.get("readOnlyRootFilesystem") is not True:
                yield f"{_where(obj, each)} may write into its image"


@policy
def nothing_belongs_to_the_host(rendered: Render) -> Iterator[str]:
    """No namespace, port or path of a node."""
    for obj in rendered.own():
        for spec in charts.pod_specs(obj):
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                if spec.get(key):
                    yield f"{_where(obj)} has {key}"
            for volume in spec.get("volumes", ()):
                if "hostPath" in volume and volume["name"] not in charts.USERS_VOLUMES:
                    yield f"{_where(obj)} mounts a path of the node"
        for each in charts.containers(obj):
            if any("hostPort" in port for port in each.get("ports", ())):
                yield f"{_where(obj, each)} takes a port of the node"


@policy
def containers_say_what_they_need(rendered: Render) -> Iterator[str]:
    """Requests of processor time and memory, and a limit of memory."""
    for obj in rendered.own():
        for each in charts.containers(obj):
            resources = each.get("resources", {})
            if not {"cpu", "memory"} <= resources.get("requests", {}).keys():
                yield f"{_where(obj, each)} has no requests"
            if "memory" not in resources.get("limits", {}):
                yield f"{_where(obj, each)} has no limit of memory"


@policy
def images_name_one_version(rendered: Render) -> Iterator[str]:
    """A digest or a tag, never latest."""
    for obj in rendered.own():
        for each in charts.containers(obj):
            image = each["image"]
            if not re.search(r"@sha256:[0-9a-f]{64}$|:[\w.-]+$", image) or image.endswith(":latest"):
                yield f"{_where(obj, each)} runs {image}"


@policy
def no_pod_has_a_token_or_a_role(rendered: Render) -> Iterator[str]:
    """Nothing of ours talks to the API server."""
    for obj in rendered.own():
        if obj["kind"] in {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}:
            yield f"{_where(obj)} grants rights"
        if obj["kind"] == "ServiceAccount" and obj.get("automountServiceAccountToken") is not False:
            yield f"{_where(obj)} mounts its token"
        for spec in charts.pod_specs(obj):
            if spec.get("automountServiceAccountToken") is not False:
                yield f"{_where(obj)} mounts a token"


@policy
def every_service_has_an_account_of_its_own(rendered: Render) -> Iterator[str]:
    """Workloads name their own account."""
    accounts = {each["metadata"]["name"] for each in rendered.all("ServiceAccount")}
    for obj in rendered.own():
        if obj["kind"] in WORKLOADS and "provision" not in json.dumps(obj["spec"]):
            for spec in charts.pod_specs(obj):
                if spec.get("serviceAccountName") not in accounts:
                    yield f"{_where(obj)} runs as {spec.get('serviceAccountName')}"


@policy
def names_fit(rendered: Render) -> Iterator[str]:
    """63 characters for what becomes a label or a host name; pods of jobs and sets append to it."""
    longest = {"JobSet": 46, "TrainJob": 46, "TrainingRuntime": 46, "Job": 57, "StatefulSet": 52, "LeaderWorkerSet": 52}
    for obj in rendered.own():
        name = obj["metadata"]["name"]
        if len(name) > longest.get(obj["kind"], 63) or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            yield f"{_where(obj)} has a name that does not fit"
        for label in obj["metadata"].get("labels", {}).values():
            if len(label) > 63:
                yield f"{_where(obj)} has a label that does not fit"


@policy
def selectors_never_change(rendered: Render) -> Iterator[str]:
    """They are immutable: no version, no chart; and they match the pods."""
    for obj in rendered.own():
        selector = obj.get("spec", {}).get("selector", {})
        if obj["kind"] in {"Deployment", "StatefulSet"}:
            wanted = selector["matchLabels"]
            if wanted.keys() != {"app.kubernetes.io/name", "app.kubernetes.io/instance"}:
                yield f"{_where(obj)} selects by {sorted(wanted)}"
            labels = obj["spec"]["template"]["metadata"]["labels"]
            if not wanted.items() <= labels.items():
                yield f"{_where(obj)} does not select its own pods"


@policy
def services_reach_pods(rendered: Render) -> Iterator[str]:
    """Each Service selects a pod of the render that has its ports."""
    pods = [(t["metadata"]["labels"], t["spec"]) for obj in rendered.own() for _, t in charts.pod_templates(obj)]
    for service in rendered.all("Service"):
        selector = {k: v for k, v in service["spec"]["selector"].items() if "leaderworkerset" not in k}
        names = {
            port["name"]
            for labels, spec in pods
            if selector.items() <= labels.items()
            for each in spec["containers"]
            for port in each.get("ports", ())
        }
        missing = {port["targetPort"] for port in service["spec"]["ports"]} - names
        if missing:
            yield f"{_where(service)} leads to no port {sorted(missing)}"


@policy
def volumes_and_mounts_agree(rendered: Render) -> Iterator[str]:
    """Every mount has its volume and every volume a mount; nothing is mounted inside a read-only mount."""
    for obj in rendered.own():
        for spec in charts.pod_specs(obj):
            volumes = {volume["name"] for volume in spec.get("volumes", ())}
            volumes |= {t["metadata"]["name"] for t in obj.get("spec", {}).get("volumeClaimTemplates", ())}
            mounts = [
                m for c in (*spec.get("initContainers", ()), *spec["containers"]) for m in c.get("volumeMounts", ())
            ]
            if {mount["name"] for mount in mounts} != volumes:
                yield f"{_where(obj)}: mounts and volumes differ"
            for each in spec["containers"]:
                own = each.get("volumeMounts", ())
                paths = [mount["mountPath"] for mount in own]
                if len(paths) != len(set(paths)):
                    yield f"{_where(obj, each)} mounts twice at one path"
                for outer in own:
                    if outer.get("readOnly") and any(path.startswith(f"{outer['mountPath']}/") for path in paths):
                        yield f"{_where(obj, each)} mounts inside the read-only {outer['mountPath']}"


@policy
def probes_are_right_with_tls_on_and_off(rendered: Render) -> Iterator[str]:
    """gRPC probes speak plaintext: they ask the port that does. Ready by the service's name, alive by the empty one."""
    for obj in rendered.own():
        if obj["kind"] not in {"Deployment", "StatefulSet", "LeaderWorkerSet"} or obj["spec"].get("replicas") == 2:
            continue
        component = obj["metadata"]["labels"]["app.kubernetes.io/component"]
        template = next(t for path, t in charts.pod_templates(obj) if "worker" not in path.lower().split("/")[-1])
        (container,) = [each for each in template["spec"]["containers"] if each["name"] == component]
        if component == "nats":
            wanted: dict[str, Any] = {"startup": 8222, "readiness": 8222, "liveness": 8222}
            found = {k: {"8222": 8222, "monitor": 8222}.get(str(container.get(f"{k}Probe", {}).get("httpGet", {}).get("port"))) for k in wanted}  # fmt: skip
        else:
            server = charts.configuration(rendered, component)["server"]
            if ("tls" in server) != ("health_port" in server):
                yield f"{_where(obj)}: TLS and the plaintext health port do not go together"
            port = server.get("health_port", server["port"])
            name = next(p for p in container["ports"] if p["name"] == ("health" if "tls" in server else "grpc"))
            full = f"webagent.{component}.v1."
            wanted = {"startup": (port, True), "readiness": (port, True), "liveness": (port, False)}
            found = {}
            for kind in wanted:
                probe = container.get(f"{kind}Probe", {}).get("grpc", {})
                found[kind] = (probe.get("port"), str(probe.get("service", "")).startswith(full))
            if name["containerPort"] != port:
                yield f"{_where(obj)} probes a port that the container does not name"
        if found != wanted:
            yield f"{_where(obj)} probes {found}, not {wanted}"


@policy
def ports_agree(rendered: Render) -> Iterator[str]:
    """The port in the configuration is the container's and the headless Service's."""
    for component in charts.SERVICES:
        services = [s for s in rendered.all("Service") if s["metadata"]["labels"].get("app.kubernetes.io/component") == component]  # fmt: skip
        if not services:
            continue
        server = charts.configuration(rendered, component)["server"]
        (headless,) = [s for s in services if s["metadata"]["name"].endswith("-headless")]
        ports = {port["name"]: port["port"] for port in headless["spec"]["ports"]}
        if (ports["grpc"], ports["metrics"]) != (server["port"], server["metrics_port"]):
            yield f"{component}: the Service has ports {ports}"
        if headless["spec"]["clusterIP"] != "None":
            yield f"{component}: clients that balance find one address"
        if any(port["name"] in {"admin", "metrics"} for s in services for port in s["spec"]["ports"] if s["spec"].get("clusterIP") != "None"):  # fmt: skip
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
                yield f"{_where(each)} scales down at once"
    for obj in rendered.own():
        if obj["kind"] in {"Deployment", "LeaderWorkerSet"}:
            owners = scalers.pop(obj["metadata"]["name"], [])
            if len(owners) > 1 or bool(owners) == ("replicas" in obj["spec"]):
                yield f"{_where(obj)}: replicas have {len(owners)} scalers, and are {obj['spec'].get('replicas')}"
    if scalers:
        yield f"{sorted(scalers)} are scaled and not there"


@policy
def keda_reads_the_right_consumer(rendered: Render) -> Iterator[str]:
    """The stream, the consumer, an account, a headless endpoint; a fallback for when it cannot be read."""
    for each in rendered.all("ScaledObject"):
        if each["spec"].get("fallback", {}).get("replicas", 0) < 1:
            yield f"{_where(each)} has no fallback"
        for trigger in each["spec"]["triggers"]:
            if trigger["type"] == "nats-jetstream":
                metadata = trigger["metadata"]
                if (metadata["stream"], metadata["consumer"]) != (streams.REQUESTS, streams.REQUEST_CONSUMER):
                    yield f"{_where(each)} reads {metadata['stream']}/{metadata['consumer']}"
                if not metadata.get("account") or "-headless." not in metadata["natsServerMonitoringEndpoint"]:
                    yield f"{_where(each)} finds no consumer's leader"
                if not all(isinstance(value, str) for value in metadata.values()):
                    yield f"{_where(each)}: KEDA takes strings"


@policy
def work_may_end_before_a_pod_is_killed(rendered: Render) -> Iterator[str]:
    """Grace above the drain, env's drain above the longest episode, budgets for disruptions."""
    for obj in rendered.own():
        component = obj["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        if obj["kind"] not in WORKLOADS or component not in charts.SERVICES or "provision" in json.dumps(obj["spec"]):
            continue
        drain = charts.configuration(rendered, component)["server"]["drain_seconds"]
        for template in (t for _, t in charts.pod_templates(obj)):
            if template["spec"]["terminationGracePeriodSeconds"] <= drain:
                yield f"{_where(obj)} is killed while it drains"
            if component == "env":
                if drain < LONGEST_EPISODE:
                    yield f"{_where(obj)} cuts episodes short"
                kept = template["metadata"].get("annotations", {})
                if kept.get("cluster-autoscaler.kubernetes.io/safe-to-evict") != "false":
                    yield f"{_where(obj)} is evicted while it holds sessions"
        if obj["kind"] == "Deployment":
            labels = obj["spec"]["selector"]["matchLabels"]
            if not any(b["spec"]["selector"]["matchLabels"] == labels for b in rendered.all("PodDisruptionBudget")):
                yield f"{_where(obj)} has no disruption budget"


@policy
def networks_are_closed(rendered: Render) -> Iterator[str]:
    """A policy for each workload, both directions, no rule for everybody; metadata and private ranges stay closed."""
    policies = [p for p in rendered.all("NetworkPolicy")]
    for obj in rendered.own():
        if obj["kind"] in WORKLOADS and "provision" not in json.dumps(obj["spec"]):
            for _, template in charts.pod_templates(obj):
                labels = template["metadata"]["labels"]
                if not any(p["spec"]["podSelector"]["matchLabels"].items() <= labels.items() for p in policies):
                    yield f"{_where(obj)} has no network policy"
    for each in policies:
        if each["spec"]["policyTypes"] != ["Ingress", "Egress"]:
            yield f"{_where(each)} leaves a direction open"
        for rule in each["spec"].get("ingress") or ():
            if not rule.get("from") or {} in rule["from"]:
                yield f"{_where(each)} lets everybody in"
        for rule in each["spec"].get("egress") or ():
            if not rule.get("to"):
                yield f"{_where(each)} lets out to everywhere"
            for peer in rule.get("to", ()):
                block = peer.get("ipBlock", {})
                if block.get("cidr") == "0.0.0.0/0":
                    missing = {*METADATA_ADDRESSES, *PRIVATE_RANGES} - set(block.get("except", ()))
                    if missing:
                        yield f"{_where(each)} opens {sorted(missing)}"
                if block.get("cidr") == "::/0" and "fd00:ec2::254/128" not in block.get("except", ()):
                    yield f"{_where(each)} opens the metadata address of IPv6"


@policy
def env_reaches_no_queue(rendered: Render) -> Iterator[str]:
    """Pages are hostile: the queue lets env and evaluator not in, and monitoring only whom it names."""
    for each in rendered.all("NetworkPolicy"):
        if each["metadata"]["labels"].get("app.kubernetes.io/component") != "nats":
            continue
        for rule in each["spec"]["ingress"]:
            ports = {port["port"] for port in rule["ports"]}
            for peer in rule["from"]:
                if 4222 in ports and peer.get("podSelector", {}).get("matchLabels") and not any(
                    e["operator"] == "NotIn" and "env" in e["values"] for e in peer["podSelector"].get("matchExpressions", ())
                ):  # fmt: skip
                    yield f"{_where(each)} lets env in"
                if 8222 in ports and "namespaceSelector" not in peer:
                    yield f"{_where(each)} shows its monitoring to pods"


@policy
def secrets_are_secret(rendered: Render) -> Iterator[str]:
    """No password or token in a ConfigMap, an argument or a plain variable."""
    suspicious = re.compile(r"://[^/\s\"]*:[^/\s\"]*@|password|BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE)
    for obj in rendered.own():
        if obj["kind"] == "ConfigMap" and suspicious.search(json.dumps(obj["data"])):
            yield f"{_where(obj)} holds a secret"
        for each in charts.containers(obj):
            texts = [str(variable.get("value", "")) for variable in each.get("env", ())]
            if any(suspicious.search(text) for text in [*texts, *map(str, each.get("args", ()))]):
                yield f"{_where(obj, each)} shows a secret"


@policy
def a_changed_configuration_restarts_pods(rendered: Render) -> Iterator[str]:
    """Pods carry the checksum of their configuration, and of a Secret that the chart renders."""
    for obj in rendered.own():
        component = obj["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        if obj["kind"] in {"Deployment", "StatefulSet"}:
            annotations = obj["spec"]["template"]["metadata"].get("annotations", {})
            if "checksum/config" not in annotations:
                yield f"{_where(obj)} does not notice another configuration"
            secret = rendered.all("Secret", obj["metadata"]["name"])
            if component != "nats" and secret and "checksum/secret" not in annotations:
                yield f"{_where(obj)} does not notice another secret"


@policy
def hooks_clean_up(rendered: Render) -> Iterator[str]:
    """What a hook leaves is removed before it runs again."""
    for obj in rendered.own():
        annotations = obj["metadata"].get("annotations", {})
        if "helm.sh/hook" in annotations and "before-hook-creation" not in annotations.get("helm.sh/hook-delete-policy", ""):  # fmt: skip
            yield f"{_where(obj)} stays in the way of itself"


@policy
def objects_are_in_the_release_s_namespace(rendered: Render) -> Iterator[str]:
    """And have labels that say whose they are."""
    for obj in rendered.own():
        metadata = obj["metadata"]
        if metadata.get("namespace") != "default":
            yield f"{_where(obj)} has no namespace"
        if metadata.get("labels", {}).get("app.kubernetes.io/instance") != charts.RELEASE:
            yield f"{_where(obj)} does not say whose it is"
