"""What every policy of the charts' renders is: it names the problems that it finds, none if it holds.

What a user passes in (containers, volumes, objects) is left out: it goes through as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from charts import Object, Render

Policy = Callable[[Render], Iterator[str]]
POLICIES: dict[str, Policy] = {}
WORKLOADS = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Job", "JobSet", "TrainingRuntime")


def policy(function: Policy) -> Policy:
    """Registers a policy under its name."""
    POLICIES[function.__name__] = function
    return function


def where(obj: Object, container: Object | None = None) -> str:
    """An object by its name, for the sentence about it."""
    name = f"{obj['kind']} {obj['metadata']['name']}"
    return f"{name}: {container['name']}" if container else name
