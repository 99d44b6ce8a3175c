"""Policies on what runs: rights, resources, images, volumes, secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import charts
from chart_policy import WORKLOADS, policy, where
from charts import Render


@policy
def pods_are_restricted(rendered: Render) -> Iterator[str]:
    """Pod Security restricted."""
    for obj in rendered.own():
        for spec in charts.pod_specs(obj):
            context = spec.get("securityContext", {})
            if context.get("runAsNonRoot") is not True or context.get("runAsUser", 1) == 0:
                yield f"{where(obj)} may run as root"
            if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
                yield f"{where(obj)} has no seccomp profile"
        for each in charts.containers(obj):
            context = each.get("securityContext", {})
            if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
                yield f"{where(obj, each)} may escalate its privileges"
            if context.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{where(obj, each)} keeps capabilities"
            if context.get("readOnlyRootFilesystem") is not True:
                yield f"{where(obj, each)} may write into its image"


@policy
def chromium_has_the_sandbox_that_was_chosen(rendered: Render) -> Iterator[str]:
    """Its own needs a profile of the nodes, which is there for nothing else; with none, it is off."""
    for obj in rendered.all("Deployment"):
        if charts.component(obj) == "env":
            own = charts.configuration(rendered, "env")["browser"]["sandbox"]
            for spec in charts.pod_specs(obj):
                profile = spec.get("securityContext", {}).get("seccompProfile", {})
                if own != (profile.get("type") == "Localhost") or own != bool(profile.get("localhostProfile")):
                    yield f"{where(obj)}: Chromium's sandbox is {own} under {profile}"


@policy
def nothing_belongs_to_the_host(rendered: Render) -> Iterator[str]:
    """No namespace, port or path of a node."""
    for obj in rendered.own():
        for spec in charts.pod_specs(obj):
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                if spec.get(key):
                    yield f"{where(obj)} has {key}"
            for volume in spec.get("volumes", ()):
                if "hostPath" in volume and volume["name"] not in charts.USERS_VOLUMES:
                    yield f"{where(obj)} mounts a path of the node"
        for each in charts.containers(obj):
            if any("hostPort" in port for port in each.get("ports", ())):
                yield f"{where(obj, each)} takes a port of the node"


@policy
def containers_say_what_they_need(rendered: Render) -> Iterator[str]:
    """Requests of processor time and memory, and a limit of memory."""
    for obj in rendered.own():
        for each in charts.containers(obj):
            resources = each.get("resources", {})
            if not {"cpu", "memory"} <= resources.get("requests", {}).keys():
                yield f"{where(obj, each)} has no requests"
            if "memory" not in resources.get("limits", {}):
                yield f"{where(obj, each)} has no limit of memory"


@policy
def images_name_one_version(rendered: Render) -> Iterator[str]:
    """A digest or a tag, never latest."""
    for obj in rendered.own():
        for each in charts.containers(obj):
            image = each["image"]
            if not re.search(r"@sha256:[0-9a-f]{64}$|:[\w.-]+$", image) or image.endswith(":latest"):
                yield f"{where(obj, each)} runs {image}"


@policy
def no_pod_has_a_token_or_a_role(rendered: Render) -> Iterator[str]:
    """Nothing of ours talks to the API server."""
    for obj in rendered.own():
        if obj["kind"] in {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}:
            yield f"{where(obj)} grants rights"
        if obj["kind"] == "ServiceAccount" and obj.get("automountServiceAccountToken") is not False:
            yield f"{where(obj)} mounts its token"
        for spec in charts.pod_specs(obj):
            if spec.get("automountServiceAccountToken") is not False:
                yield f"{where(obj)} mounts a token"


@policy
def every_service_has_an_account_of_its_own(rendered: Render) -> Iterator[str]:
    """Workloads name their own account."""
    accounts = {each["metadata"]["name"] for each in rendered.all("ServiceAccount")}
    for obj in rendered.own():
        if obj["kind"] in WORKLOADS and "provision" not in json.dumps(obj["spec"]):
            for spec in charts.pod_specs(obj):
                if spec.get("serviceAccountName") not in accounts:
                    yield f"{where(obj)} runs as {spec.get('serviceAccountName')}"


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
                yield f"{where(obj)}: mounts and volumes differ"
            for each in spec["containers"]:
                own = each.get("volumeMounts", ())
                paths = [mount["mountPath"] for mount in own]
                if len(paths) != len(set(paths)):
                    yield f"{where(obj, each)} mounts twice at one path"
                for outer in own:
                    if outer.get("readOnly") and any(path.startswith(f"{outer['mountPath']}/") for path in paths):
                        yield f"{where(obj, each)} mounts inside the read-only {outer['mountPath']}"


@policy
def a_claim_of_one_node_has_one_workload(rendered: Render) -> Iterator[str]:
    """Else pods that could run on any node would have to share one."""
    for claim in rendered.all("PersistentVolumeClaim"):
        name = claim["metadata"]["name"]
        users = [
            where(obj)
            for obj in rendered.own()
            for spec in charts.pod_specs(obj)
            for volume in spec.get("volumes", ())
            if volume.get("persistentVolumeClaim", {}).get("claimName") == name
        ]
        if len(users) > 1 and "ReadWriteMany" not in claim["spec"]["accessModes"]:
            yield f"{where(claim)} of one node is mounted by {', '.join(users)}"


@policy
def secrets_are_secret(rendered: Render) -> Iterator[str]:
    """No password or token in a ConfigMap, an argument or a plain variable."""
    suspicious = re.compile(r"://[^/\s\"]*:[^/\s\"]*@|password|BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE)
    for obj in rendered.own():
        if obj["kind"] == "ConfigMap" and suspicious.search(json.dumps(obj["data"])):
            yield f"{where(obj)} holds a secret"
        for each in charts.containers(obj):
            texts = [str(variable.get("value", "")) for variable in each.get("env", ())]
            if any(suspicious.search(text) for text in [*texts, *map(str, each.get("args", ()))]):
                yield f"{where(obj, each)} shows a secret"


@policy
def a_changed_configuration_restarts_pods(rendered: Render) -> Iterator[str]:
    """Pods carry the checksum of their configuration, and of a Secret that the chart renders."""
    for obj in rendered.own():
        component = charts.component(obj)
        if obj["kind"] in {"Deployment", "StatefulSet"}:
            annotations = obj["spec"]["template"]["metadata"].get("annotations", {})
            if "checksum/config" not in annotations:
                yield f"{where(obj)} does not notice another configuration"
            secret = rendered.all("Secret", obj["metadata"]["name"])
            if component != "nats" and secret and "checksum/secret" not in annotations:
                yield f"{where(obj)} does not notice another secret"
