"""Seeded randomness: equal seeds draw equal things."""

import random


def seeded(*parts: object) -> random.Random:
    """A source of its own for what `parts` name."""
    # Drawing tasks and shuffling rows needs repetition, not secrecy.
    return random.Random("/".join(map(str, parts)))  # noqa: S311
