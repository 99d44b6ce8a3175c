"""Writes the arena's tasks as a WebArena task file: `python -m webagent_env.arena.export [--first 0] [--count 10]`.

A task there is an instantiation; beside WebArena's members it has the `seed` that opens it and whether its template is
`held_out`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from webagent_env.arena.catalogue import make_arena


def exported(seeds: range) -> Iterator[dict[str, Any]]:
    """Every template's instantiations at these seeds."""
    arena = make_arena()
    for template_id, (name, intent) in enumerate(arena.intents.items()):
        for seed in seeds:
            task = intent.as_webarena(
                arena.goal(name, seed), template_id * len(seeds) + seed - seeds.start, template_id
            )
            yield {**task, "template": name, "seed": seed, "held_out": intent.held_out}


def main() -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=10, help="how many seeds")
    options = parser.parse_args()
    json.dump(list(exported(range(options.first, options.first + options.count))), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
