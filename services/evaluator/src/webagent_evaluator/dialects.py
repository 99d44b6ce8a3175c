"""A rule as WebArena and its descendants publish it, with its placeholders filled in; refuses what is no rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from webagent_evaluator.verdicts import malformed


class Dialect(Enum):
    """How a rule is read."""

    UPSTREAM = "webarena"
    VAB_LITE = "vab_lite"
    VERIFIED = "verified"


@dataclass(frozen=True)
class Manner:
    """How things are compared; `strict`: rightly where the dialect's evaluators are known to be wrong."""

    dialect: Dialect
    strict: bool = False

    @property
    def upstream(self) -> bool:
        """Whether the original evaluators are followed."""
        return self.dialect is Dialect.UPSTREAM


@dataclass(frozen=True)
class WebArenaRule:
    """How a task is judged; `eval_json` is the task's "eval" member as published."""

    manner: Manner
    eval_json: str
    intent: str
    site_urls: Mapping[str, str]
    unanswered_is_na: bool = False

    def parsed(self) -> object:
        """The task's "eval" member, placeholders and all."""
        try:
            return json.loads(self.eval_json)
        except (ValueError, RecursionError) as error:
            raise malformed(f"the rule is not JSON: {error}") from error

    def filled_in(self) -> Mapping[str, object]:
        """The task's "eval" member as an object, with the sites' addresses in the place of their placeholders."""
        return mapping(_fill_in(self.parsed(), self.site_urls), "eval")


def mapping(value: object, name: str) -> Mapping[str, object]:
    """A JSON object."""
    if isinstance(value, dict):
        return value
    raise malformed(f"{name} is no object")


def text(value: object, name: str, manner: Manner) -> str:
    """A string; when strict, a number is one too."""
    if isinstance(value, str):
        return value
    if manner.strict and isinstance(value, int | float):
        return str(value)
    raise malformed(f"{name} is no string")


def texts(value: object, name: str, manner: Manner) -> list[str]:
    """A list of strings; when strict, one string is a list of itself."""
    if isinstance(value, str) and manner.strict:
        return [value]
    if isinstance(value, list):
        return [text(item, f"{name}[{index}]", manner) for index, item in enumerate(value)]
    raise malformed(f"{name} is no list")


def alternatives(item: str) -> Iterable[str]:
    """The parts of "a |OR| b"."""
    return item.split(" |OR| ")


def _fill_in(value: object, site_urls: Mapping[str, str]) -> object:
    match value:
        case str():
            for placeholder, url in site_urls.items():
                value = value.replace(placeholder, url)
            return value
        case list():
            return [_fill_in(item, site_urls) for item in value]
        case dict():
            return {key: _fill_in(item, site_urls) for key, item in value.items()}
    return value
