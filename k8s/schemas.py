"""What the default of a value cannot say: enums, bounds, and what no chart of ours renders, whatever is asked for.

Keys of OVERRIDES are dotted paths of values.yaml. An override without a type adds to the schema that follows from the
default. OWNED names the keys of a service's configuration that its chart sets itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]


def _model(module: str, name: str) -> Callable[[], type[BaseModel]]:
    def load() -> type[BaseModel]:
        model: type[BaseModel] = getattr(import_module(module), name)
        return model

    return load


MODELS: dict[str, Callable[[], type[BaseModel]]] = {
    "env": _model("webagent_env.config", "EnvConfig"),
    "inference": _model("webagent_inference.config", "InferenceConfig"),
    "evaluator": _model("webagent_evaluator.config", "EvaluatorConfig"),
    "rollout": _model("webagent_rollout.config", "RolloutConfig"),
    "trainer": _model("webagent_trainer.config", "TrainerConfig"),
    "run": _model("webagent_trainer.config", "RunConfig"),
}

OWNED: dict[str, tuple[str, ...]] = {
    "env": ("telemetry", "state_directory"),
    "inference": ("telemetry",),
    "evaluator": ("telemetry",),
    "rollout": ("telemetry", "payloads"),
    "trainer": ("telemetry", "run"),
    "run": ("run_directory", "model", "payloads"),
    "ServerConfig": ("port", "advertise", "metrics_port", "health_port", "drain_seconds", "tls", "tokens_file"),
    "ClientConfig": ("tls", "token_file"),
    "TargetConfig": ("target",),
    "QueueConfig": ("url", "credentials_file", "tls", "replicas"),
    "ModelConfig": ("path",),
    "UpdateConfig": ("staging",),
    "PublishConfig": ("uri",),
    "BrowserConfig": ("sandbox",),
    "FaceConfig": ("host", "port", "tls", "tokens_file"),
}


def _objects(*required: str) -> Schema:
    return {"type": "array", "items": {"type": "object", "required": list(required)}}


STRINGS: Schema = {"type": "array", "items": {"type": "string"}}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECT: Schema = {"type": "object"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT_OR_SHARE: Schema = {"type": ["integer", "string"], "pattern": "^[0-9]+%$", "minimum": 0}
QUANTITY: Schema = {"$ref": "#/definitions/quantity"}
SECONDS: Schema = {"type": ["number", "null"], "minimum": 0}
NATS_URL = r"^$|^(nats|tls|ws|wss)://[^\s,]+(,(nats|tls|ws|wss)://[^\s,]+)*$"

DEFINITIONS: dict[str, Schema] = {
    "quantity": {
        "description": "A quantity of Kubernetes, such as 500m or 4Gi.",
        "type": ["string", "number"],
        "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
        "exclusiveMinimum": 0,
    },
    "resources": {
        "description": "Requests of processor time and memory are required.",
        "type": "object",
        "additionalProperties": False,
        "required": ["requests"],
        "properties": {
            "requests": {
                "type": "object",
                "required": ["cpu", "memory"],
                "additionalProperties": {"$ref": "#/definitions/quantity"},
            },
            "limits": {"type": "object", "additionalProperties": {"$ref": "#/definitions/quantity"}},
            "claims": {"type": "array", "items": {"type": "object"}},
        },
    },
    "podSecurityContext": {
        "description": "Pod Security restricted: what is weaker is refused.",
        "type": "object",
        "additionalProperties": False,
        "required": ["runAsNonRoot", "seccompProfile"],
        "properties": {
            "runAsNonRoot": {"const": True},
            "runAsUser": {"type": "integer", "minimum": 1},
            "runAsGroup": {"type": "integer", "minimum": 1},
            "fsGroup": {"type": "integer", "minimum": 1},
            "fsGroupChangePolicy": {"enum": ["OnRootMismatch", "Always"]},
            "supplementalGroups": {"type": "array", "items": {"type": "integer", "minimum": 1}},
            "seccompProfile": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type"],
                "properties": {
                    "type": {"enum": ["RuntimeDefault", "Localhost"]},
                    "localhostProfile": {"type": "string", "minLength": 1},
                },
            },
        },
    },
    "securityContext": {
        "description": "Pod Security restricted: what is weaker is refused.",
        "type": "object",
        "additionalProperties": False,
        "required": ["allowPrivilegeEscalation", "capabilities"],
        "properties": {
            "allowPrivilegeEscalation": {"const": False},
            "privileged": {"const": False},
            "readOnlyRootFilesystem": {"type": "boolean"},
            "runAsNonRoot": {"const": True},
            "runAsUser": {"type": "integer", "minimum": 1},
            "runAsGroup": {"type": "integer", "minimum": 1},
            "capabilities": {
                "type": "object",
                "additionalProperties": False,
                "required": ["drop"],
                "properties": {"drop": {"type": "array", "contains": {"const": "ALL"}}},
            },
        },
    },
    "tag": {
        "description": "A tag that names one version.",
        "type": "string",
        "not": {"const": "latest"},
        "pattern": "^$|^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$",
    },
    "digest": {
        "description": "A digest, which wins over the tag.",
        "type": "string",
        "pattern": "^$|^sha256:[0-9a-f]{64}$",
    },
    "accessModes": {
        "description": "How a volume may be mounted.",
        "type": "array",
        "minItems": 1,
        "items": {"enum": ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod", "ReadOnlyMany"]},
    },
    "issuerRef": {
        "description": "An issuer of cert-manager.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"name": {"type": "string"}, "kind": {"type": "string"}, "group": {"type": "string"}},
    },
}

GLOBAL: Schema = {
    "type": "object",
    "description": "Values that charts of one umbrella share; other charts may add their own.",
    "properties": {
        "imageRegistry": {
            "type": "string",
            "description": "Registry that the images were pushed to. No default: build and push them first.",
        },
        "imagePullSecrets": STRINGS,
        "otlpEndpoint": {"type": "string", "pattern": "^$|^https?://"},
        "otlpPeers": _objects(),
        "sharedClaim": {"type": "string"},
        "payloadsUri": {"type": "string", "pattern": "^$|^[a-z0-9]+://"},
        "policiesUri": {"type": "string", "pattern": "^$|^[a-z0-9]+://"},
        "tls": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"enabled": {"type": "boolean"}, "issuerRef": {"$ref": "#/definitions/issuerRef"}},
        },
        "nats": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "streamReplicas": {"type": "integer", "minimum": 1, "maximum": 5},
                "external": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "url": {"type": "string", "pattern": NATS_URL, "not": {"pattern": "@"}},
                        "monitoringEndpoint": {"type": "string"},
                        "account": {"type": "string"},
                        "peers": _objects(),
                        "ports": {"type": "array", "items": PORT},
                    },
                },
            },
        },
    },
}

# A HorizontalPodAutoscaler and KEDA would both set the replicas.
COMMON_ROOT: Schema = {
    "not": {
        "required": ["autoscaling", "keda"],
        "properties": {
            name: {"required": ["enabled"], "properties": {"enabled": {"const": True}}}
            for name in ("autoscaling", "keda")
        },
    },
}

OVERRIDES: dict[str, Schema] = {
    "global": GLOBAL,
    "commonLabels": TEXTS,
    "commonAnnotations": TEXTS,
    "podLabels": TEXTS,
    "podAnnotations": TEXTS,
    "nodeSelector": TEXTS,
    "image.tag": {"$ref": "#/definitions/tag"},
    "image.digest": {"$ref": "#/definitions/digest"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"], "type": "string"},
    "imagePullSecrets": STRINGS,
    "command": STRINGS,
    "args": STRINGS,
    "extraArgs": STRINGS,
    "resources": {"$ref": "#/definitions/resources"},
    "queue.provision.resources": {"$ref": "#/definitions/resources"},
    "podSecurityContext": {"$ref": "#/definitions/podSecurityContext"},
    "securityContext": {"$ref": "#/definitions/securityContext"},
    "hostUsers": {"enum": [None, False]},
    "sandbox": {"type": "string", "enum": ["none", "userns", "seccomp-localhost"]},
    "sandboxProfile": {"type": "string", "minLength": 1},
    "accelerator.kind": {"type": "string", "enum": ["cpu", "nvidia", "amd", "gaudi"]},
    "autoscaling.metrics": _objects("type"),
    "autoscaling.behavior": OBJECT,
    "keda.behavior": OBJECT,
    "keda.triggers": _objects("type", "metadata"),
    "keda.authentication.secretTargetRef": _objects("parameter", "name", "key"),
    "pdb": {"properties": {"maxUnavailable": COUNT_OR_SHARE, "minAvailable": COUNT_OR_SHARE}},
    "drainSeconds": {"type": "number", "minimum": 0},
    "terminationGracePeriodSeconds": SECONDS,
    "tmp.size": QUANTITY,
    "shm": {"type": ["object", "null"], "additionalProperties": False, "properties": {"size": QUANTITY}},
    "telemetry.logFormat": {"type": "string", "enum": ["json", "console"]},
    "telemetry.logLevel": {"type": "string", "enum": ["debug", "info", "warning", "error"]},
    "telemetry.otlpEndpoint": {"type": "string", "pattern": "^$|^https?://"},
    "serviceAccount.annotations": TEXTS,
    "auth.tokens": {"type": "object", "additionalProperties": STRINGS},
    "tls.certManager.issuerRef": {"$ref": "#/definitions/issuerRef"},
    "networkPolicy.clients": _objects(),
    "networkPolicy.dns": _objects(),
    "networkPolicy.adminClients": _objects(),
    "networkPolicy.metricsClients": _objects(),
    "networkPolicy.extraIngress": _objects(),
    "networkPolicy.extraEgress": _objects(),
    "service.type": {"type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.port": PORT,
    "service.annotations": TEXTS,
    "route.parentRefs": _objects("name"),
    "route.hostnames": STRINGS,
    "route.annotations": TEXTS,
    "metrics.port": PORT,
    "metrics.serviceMonitor.labels": TEXTS,
    "metrics.prometheusRule.labels": TEXTS,
    "metrics.prometheusRule.extraRules": _objects("expr"),
    "metrics.dashboard.labels": TEXTS,
    "tolerations": _objects(),
    "topologySpreadConstraints": _objects("maxSkew", "topologyKey", "whenUnsatisfiable"),
    "extraEnv": _objects("name"),
    "extraEnvFrom": _objects(),
    "extraVolumes": _objects("name"),
    "extraVolumeMounts": _objects("name", "mountPath"),
    "initContainers": _objects("name"),
    "sidecars": _objects("name"),
    "extraObjects": _objects("apiVersion", "kind", "metadata"),
    "queue.url": {"type": "string", "pattern": NATS_URL},
    "queue.streamReplicas": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
    "queue.lagThreshold": {"type": "integer", "minimum": 1},
    "payloads.uri": {"type": "string", "pattern": "^$|^[a-z0-9]+://"},
    "policies.uri": {"type": "string", "pattern": "^$|^[a-z0-9]+://"},
    "model.prepareImage.tag": {"$ref": "#/definitions/tag"},
    "model.prepareImage.digest": {"$ref": "#/definitions/digest"},
    "storage.accessModes": {"$ref": "#/definitions/accessModes"},
    "storage.size": QUANTITY,
    "storage.mountPath": {"type": "string", "pattern": "^/"},
    "model.path": {"type": "string", "pattern": "^$|^/"},
    "multinode.size": {"type": "integer", "minimum": 2},
    "multinode.workerCommand": STRINGS,
    "multinode.workerArgs": STRINGS,
    "mode": {"type": "string", "enum": ["job", "service"]},
    "launcher": {"type": "string", "enum": ["job", "jobset", "trainjob"]},
    "nodes": {"type": "integer", "minimum": 1},
    "rendezvousPort": PORT,
    "job.ttlSecondsAfterFinished": {"type": ["integer", "null"], "minimum": 0},
    "runId": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
}
OVERRIDES |= {f"probes.{probe}.custom": OBJECT for probe in ("startup", "readiness", "liveness")}
OVERRIDES |= {
    f"probes.{probe}.{key}": {"type": "integer", "minimum": 1}
    for probe in ("startup", "readiness", "liveness")
    for key in ("periodSeconds", "timeoutSeconds", "failureThreshold")
}

UMBRELLA_OVERRIDES: dict[str, Schema] = {
    "global": GLOBAL,
    "sharedStorage.accessModes": {"$ref": "#/definitions/accessModes"},
    "sharedStorage.size": QUANTITY,
    "nats.image.tag": {"$ref": "#/definitions/tag"},
    "nats.image.digest": {"$ref": "#/definitions/digest"},
    "nats.image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"], "type": "string"},
    "nats.resources": {"$ref": "#/definitions/resources"},
    "nats.storage.size": QUANTITY,
    "nats.clients": _objects(),
    "nats.monitoringClients": _objects(),
    "nats.podSecurityContext": {"$ref": "#/definitions/podSecurityContext"},
    "nats.securityContext": {"$ref": "#/definitions/securityContext"},
    "nats.nodeSelector": TEXTS,
    "nats.tolerations": _objects(),
    "extraObjects": _objects("apiVersion", "kind", "metadata"),
    # Each has a schema of its own, which Helm applies.
    **dict.fromkeys(("env", "inference", "evaluator", "rollout", "trainer"), OBJECT),
}
