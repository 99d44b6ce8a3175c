"""Writes what follows from the charts' values: values.schema.json and the table of values in README.md.

    python k8s/generate.py            writes the files
    python k8s/generate.py --check    says which are not current, and exits 1

values.yaml is the source: a key's type is its default's, its meaning the comment above it. What a default cannot say
(enums, bounds, what is forbidden) stands in schemas.py. The schema of `config` and `run` is the service's own model
without the keys that the chart sets itself, so a key that the service does not know is refused before it is installed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from schemas import COMMON_ROOT, DEFINITIONS, MODELS, OVERRIDES, OWNED, UMBRELLA_OVERRIDES

CHARTS = Path(__file__).parent / "charts"
SERVICES = ("env", "inference", "evaluator", "rollout", "trainer")
UMBRELLA = "webagent"
BEGIN, END = "<!-- values: written by k8s/generate.py -->", "<!-- /values -->"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z0-9_]+):(?P<rest>.*)$")

Schema = dict[str, Any]
# A bool is an int too: the order counts.
_TYPES: tuple[tuple[type, Schema], ...] = (
    (bool, {"type": "boolean"}),
    (int, {"type": "integer", "minimum": 0}),
    (str, {"type": "string"}),
    (list, {"type": "array"}),
    (dict, {"type": "object"}),
)


def comments(text: str) -> dict[str, str]:
    """The comment above each key of a values file, by the key's dotted path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# "):
            above.append(stripped[2:])
        elif match := _KEY.match(line):
            indent = len(match["indent"])
            path = [(depth, key) for depth, key in path if depth < indent]
            path.append((indent, match["key"]))
            if above:
                found[".".join(key for _, key in path)] = " ".join(above)
            above = []
        else:
            above = []
    return found


def walk(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of a values file with their defaults, parents before children."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        yield path, value
        if isinstance(value, dict):
            yield from walk(value, f"{path}.")


def schema_of(value: Any, path: str, overrides: dict[str, Schema], meanings: dict[str, str]) -> Schema:
    """The schema of one key: what schemas.py says of it, else what its default is."""
    override = overrides.get(path)
    schema: Schema
    if override is not None and "type" not in override and "$ref" not in override and isinstance(value, dict):
        schema = {**_typed(value, path, overrides, meanings), **override}
        schema["properties"] = {**_typed(value, path, overrides, meanings)["properties"], **override["properties"]}
    elif override is not None:
        schema = dict(override)
    else:
        schema = _typed(value, path, overrides, meanings)
    return {"description": meanings[path], **schema} if path in meanings and "$ref" not in schema else schema


def _typed(value: Any, path: str, overrides: dict[str, Schema], meanings: dict[str, str]) -> Schema:
    if isinstance(value, dict) and value:
        properties = {
            key: schema_of(inner, f"{path}.{key}" if path else key, overrides, meanings) for key, inner in value.items()
        }
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(value, list) and value:
        return {"type": "array", "items": {"type": "object" if isinstance(value[0], dict) else "string"}}
    for kind, schema in _TYPES:
        if isinstance(value, kind):
            return dict(schema)
    raise ValueError(f"{path}: schemas.py must say what may be set here")


def model_schema(name: str, owned: tuple[str, ...]) -> tuple[Schema, dict[str, Schema]]:
    """A service's own configuration as a schema, without what the chart sets."""
    raw = MODELS[name]().model_json_schema(ref_template="#/definitions/{model}")
    definitions: dict[str, Schema] = raw.pop("$defs", {})
    for model, keys in OWNED.items():
        for key in keys if model in definitions else ():
            definitions[model]["properties"].pop(key, None)
    for key in owned:
        raw["properties"].pop(key, None)
    root = _plain(raw)
    used: dict[str, Schema] = {}
    wanted = set(_references(root))
    while wanted:
        model = wanted.pop()
        used[model] = _plain(definitions[model])
        wanted |= set(_references(used[model])) - used.keys()
    return root, used


def _plain(schema: Any) -> Any:
    """Without titles, defaults and `required`: the service has the last word on what must be there."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(inner) for key, inner in schema.items() if key not in {"default", "required", "format"}}
    if isinstance(plain.get("title"), str):
        del plain["title"]
    return plain


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix("#/definitions/")
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def chart_schema(chart: str) -> Schema:
    """The schema of a chart's values. The root stays open to `global`, and to what Helm adds for the library."""
    text = (CHARTS / chart / "values.yaml").read_text()
    values: dict[str, Any] = yaml.safe_load(text)
    meanings = comments(text)
    if chart == UMBRELLA:
        root = schema_of(values, "", UMBRELLA_OVERRIDES, meanings)
        definitions = dict(DEFINITIONS)
    else:
        config, definitions = model_schema(chart, OWNED[chart])
        overrides = {**OVERRIDES, "config": config}
        if chart == "trainer":
            overrides["run"], more = model_schema("run", OWNED["run"])
            definitions |= more
        root = schema_of(values, "", overrides, meanings)
        definitions |= DEFINITIONS
        if "autoscaling" in values:
            root |= COMMON_ROOT
    root["properties"]["common"] = {"type": "object"}
    used = set(_references(root))
    while more_used := {name for each in used for name in _references(definitions[each])} - used:
        used |= more_used
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"Values of the chart {chart}"}
    return {**head, **root, "definitions": {name: definitions[name] for name in sorted(used)}}


def values_table(chart: str) -> str:
    """The values as a table, in the order of the file."""
    text = (CHARTS / chart / "values.yaml").read_text()
    meanings = comments(text)
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, default in walk(yaml.safe_load(text)):
        if path in meanings:
            branch = isinstance(default, dict) and any(key.startswith(f"{path}.") for key in meanings)
            shown = "" if branch else f"`{json.dumps(default, ensure_ascii=False)}`".replace("|", "\\|")
            rows.append(f"| `{path}` | {shown} | {meanings[path]} |")
    return "\n".join(rows)


def outputs() -> dict[Path, str]:
    """Every file that is generated, with what it must hold."""
    files: dict[Path, str] = {}
    for chart in (*SERVICES, UMBRELLA):
        files[CHARTS / chart / "values.schema.json"] = json.dumps(chart_schema(chart), indent=1) + "\n"
        readme = CHARTS / chart / "README.md"
        before, _, rest = readme.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        files[readme] = f"{before}{BEGIN}\n\n{values_table(chart)}\n\n{END}{after}"
    return files


def main() -> int:
    """Writes, or with --check compares."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    check = parser.parse_args().check
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        shown = path.relative_to(CHARTS.parent.parent)
        sys.stdout.write(f"{shown} is not current; run make charts\n" if check else f"wrote {shown}\n")
        if not check:
            path.write_text(outputs()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
