"""What the examples render to, kept beside them, so that a change of a chart shows what it changes.

python tests/support/chart_goldens.py      writes k8s/examples/rendered
"""

from __future__ import annotations

import sys
import typing
from functools import cache
from pathlib import Path

import chart_tools
import charts
from webagent_inference.config import InferenceConfig

RENDERED = charts.EXAMPLES / "rendered"
# Examples of one chart; the others are values of the umbrella.
CHART_OF = {"env-only": "env", "trainer-multi-node": "trainer"}
# Of an example of the umbrella, the part that it is about.
PART_OF = {
    "inference-another-model": "inference",
    "inference-elsewhere": "rollout",
    "inference-openai": "inference",
    "inference-own-image": "inference",
    "inference-vllm-grpc": "inference",
}
BACKEND_OF = {"inference-vllm-grpc": "vllm-grpc", "inference-openai": "openai"}
NAMES = tuple(sorted(path.stem for path in charts.EXAMPLES.glob("*.yaml") if path.stem != "nats-values"))


def lacks_backend(name: str) -> bool:
    """Whether the inference service does not know the backend that the example is about."""
    known = typing.get_args(InferenceConfig.model_fields["backend"].annotation)
    return name in BACKEND_OF and BACKEND_OF[name] not in known


@cache
def _text(name: str) -> str:
    """An example as Helm renders it, without the pods of `helm test`."""
    values = {"global.imageRegistry": "registry.example"}
    file = charts.EXAMPLES / f"{name}.yaml"
    return charts.template(CHART_OF.get(name, "webagent"), file, values=values, options=("--skip-tests",))


def golden(name: str) -> str:
    """What is kept of an example's render: all, or the part that it is about."""
    documents = [f"---\n{document.strip()}\n" for document in _text(name).split("\n---\n") if document.strip(" -\n")]
    part = PART_OF.get(name)
    return "".join(each for each in documents if part is None or f"/charts/{part}/templates/" in each.splitlines()[1])


def render_example(name: str) -> charts.Render:
    """All objects of an example."""
    return charts.Render(name, tuple(charts.parse(_text(name))))


def main() -> None:
    """Writes what differs."""
    chart_tools.fetch()
    RENDERED.mkdir(exist_ok=True)
    for name in NAMES:
        path: Path = RENDERED / f"{name}.yaml"
        if not lacks_backend(name) and (not path.exists() or path.read_text() != golden(name)):
            path.write_text(golden(name))
            sys.stdout.write(f"wrote {path.relative_to(charts.ROOT)}\n")


if __name__ == "__main__":
    main()
