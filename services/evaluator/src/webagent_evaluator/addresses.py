"""How the address that an agent ended on is compared with a rule's. Pure functions, exact in each dialect."""

from __future__ import annotations

import re
from collections import defaultdict
from urllib.parse import SplitResult, parse_qs, urlsplit

from webagent_evaluator.dialects import Manner, alternatives
from webagent_evaluator.verdicts import malformed

_WITHIN, _EXACT = "GOLD in PRED", "EXACT"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def matches(reference: str, note: object, final_url: str, manner: Manner) -> bool:
    """The rule url_match; `note` says how, and what is not given is the dialect's default."""
    references = list(alternatives(reference))
    try:
        match note, manner.upstream:
            case "GOLD in PRED", _:
                return _within(references, final_url, manner)
            case "EXACT", False:
                return _exact(references, final_url, manner)
    except ValueError as error:
        raise malformed(f"an address of the rule: {error}") from error
    raise malformed(f"url_note {note!r} is unknown")


def default_note(manner: Manner) -> str:
    """How addresses are compared where the rule does not say."""
    return _WITHIN if manner.upstream else _EXACT


def _within(references: list[str], final_url: str, manner: Manner) -> bool:
    if manner.strict:
        return any(_is_below(_split(reference, manner), _split(final_url, manner), manner) for reference in references)
    if not manner.upstream:
        return any(_trim(reference) in _trim(final_url) for reference in references)
    return _base_and_query(references, final_url)


def _exact(references: list[str], final_url: str, manner: Manner) -> bool:
    if manner.strict:
        final = _split(_trim(final_url), manner)
        return any(_is_same(_split(_trim(reference), manner), final) for reference in references)
    return _trim(final_url) in {_trim(reference) for reference in references}


def _is_same(reference: SplitResult, final: SplitResult) -> bool:
    """Strictly: equal, with the keys of the query in any order."""
    wanted, given = (parse_qs(each.query, keep_blank_values=True) for each in (reference, final))
    return wanted == given and reference._replace(query="") == final._replace(query="")


def _base_and_query(references: list[str], final_url: str) -> bool:
    """Upstream: some base occurs in the address's, and each key has a value that some reference allows."""
    final = urlsplit(final_url.rstrip("/"))
    base, query = final.netloc + final.path, parse_qs(final.query)
    allowed: defaultdict[str, set[str]] = defaultdict(set)
    bases = []
    for reference in references:
        parts = urlsplit(reference.rstrip("/"))
        bases.append(parts.netloc + parts.path)
        for key, values in parse_qs(parts.query).items():
            allowed[key].update(values)
    found = any(each in base for each in bases)
    return found and all(not values.isdisjoint(query.get(key, ())) for key, values in allowed.items())


def _is_below(reference: SplitResult, final: SplitResult, manner: Manner) -> bool:
    """Strictly: the same site, a path that begins with the reference's segments, and all of its query."""
    if reference.netloc != final.netloc or (not manner.upstream and reference.scheme != final.scheme):
        return False
    if reference.fragment not in {"", final.fragment}:
        return False
    wanted, segments = reference.path.split("/"), final.path.split("/")
    if segments[: len(wanted)] != wanted:
        return False
    query = parse_qs(final.query)
    return all(set(values) <= set(query.get(key, ())) for key, values in parse_qs(reference.query).items())


def _split(url: str, manner: Manner) -> SplitResult:
    parts = urlsplit(_single_slashes(url if manner.upstream else _local(url)))
    netloc = parts.netloc.lower()  # browsers say a host in lower case, and no port that goes without saying
    if parts.port in {None, _DEFAULT_PORTS.get(parts.scheme)}:
        netloc = re.sub(r":\d*$", "", netloc)
    return parts._replace(netloc=netloc, path=parts.path.rstrip("/"))


def _trim(url: str) -> str:
    """VisualAgentBench: one spelling of this machine, and no slash at the end."""
    return _local(url).removesuffix("/")


def _local(url: str) -> str:
    return url.replace("localhost", "127.0.0.1")


def _single_slashes(url: str) -> str:
    """A site's address that was given with a slash at its end leaves two in a row."""
    base, mark, query = url.partition("?")
    return re.sub(r"(?<!:)/{2,}", "/", base) + mark + query
