"""Objects against the strict schemas of a Kubernetes version, and against hand-kept ones of other controllers."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import chart_tools
import yaml
from charts import Object
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

CRDS = Path(__file__).parents[1] / "charts" / "crds.yaml"
DEFINITIONS = "https://kubernetes.io/api/_definitions.json"


def problems(obj: Object, version: str) -> list[str]:
    """What is wrong with an object; nothing if it is valid."""
    errors = sorted(_validator(obj["apiVersion"], obj["kind"], version).iter_errors(obj), key=lambda e: list(e.path))
    name = f"{obj['kind']} {obj['metadata']['name']}"
    return [f"{name}: {'.'.join(map(str, error.path))}: {error.message[:300]}" for error in errors]


@cache
def _validator(api_version: str, kind: str, version: str) -> Any:
    folder = chart_tools.kubernetes_schemas(version)
    definitions = json.loads((folder / "_definitions.json").read_text())
    registry: Any = Resource.from_contents(definitions) @ Registry()
    custom = _crds().get(f"{api_version}/{kind}")
    if custom is not None:
        return Draft202012Validator(custom, registry=registry)
    # apps/v1 is apps-v1, networking.k8s.io/v1 is networking-v1.
    name = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = folder / f"{kind.lower()}-{name}.json"
    if not schema.exists():
        raise AssertionError(f"no schema of {api_version} {kind} in Kubernetes {version}")
    return Draft202012Validator(json.loads(schema.read_text()), registry=registry)


@cache
def _crds() -> dict[str, Any]:
    """By apiVersion and kind; `kubernetes: NAME` stands for a definition of Kubernetes itself."""
    loaded: dict[str, Any] = yaml.safe_load(CRDS.read_text())
    shared = loaded.pop("shared")
    return {name: _expand(name, spec, shared) for name, spec in loaded.items()}


def _expand(name: str, spec: Any, shared: Any) -> Any:
    api_version, _, kind = name.rpartition("/")
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": api_version},
            "kind": {"const": kind},
            "metadata": {"$ref": f"{DEFINITIONS}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
            "spec": _strict(spec, shared),
        },
    }


def _strict(node: Any, shared: Any) -> Any:
    """The short form of crds.yaml as a schema: a mapping is an object that takes these keys and no others."""
    if isinstance(node, list):
        return {"type": "array", "minItems": 1, "items": _strict(node[0], shared)}
    if isinstance(node, str):
        return _leaf(node, shared)
    required = [key.removesuffix("!") for key in node if key.endswith("!")]
    properties = {key.removesuffix("!"): _strict(inner, shared) for key, inner in node.items()}
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _leaf(text: str, shared: Any) -> Any:
    if text.startswith("io.k8s."):
        return {"$ref": f"{DEFINITIONS}#/$defs/{text}"}
    if text.startswith("="):
        return _strict(shared[text[1:]], shared)
    if text.startswith("one of "):
        return {"enum": text.removeprefix("one of ").split()}
    if text == "texts":
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if text == "integer or string":
        return {"type": ["integer", "string"]}
    if text == "duration":
        return {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"}
    return {"type": text}
