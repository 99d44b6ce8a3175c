"""What program_html reads of pages: where, and the JavaScript that does it. No part of a rule is evaluated here.

A locator is JavaScript of the task's and runs only in the page that it inspects; or it names one of WebArena's helper
functions, whose counterparts are below. A name that is not among them, or an argument that is no plain string, is a
malformed rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from webagent_evaluator.verdicts import malformed

FUNCTION = "func:"
LAMBDA = "lambda:"
_JAVASCRIPT = ("document.", "[...document.")
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"""\s*(?:'([^'\\]*)'|"([^"\\]*)"|(__page__))\s*(,|$)""")
_SHOP = "__SHOPPING__"


@dataclass(frozen=True)
class Query:
    """Something to read of a page, as the rule says it. An empty `url` is the page that the agent ended on."""

    url: str = ""
    locator: str = ""
    prep_actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What was read, as JSON, and the address of the page it was read from."""

    value: object
    url: str


@dataclass(frozen=True)
class Account:
    """The shop's administrator, for WebArena's helper functions that ask its API."""

    username: str
    password: str


@dataclass(frozen=True)
class Script:
    """JavaScript for a page; None reads the whole page."""

    url: str
    javascript: str | None


def script_for(query: Query, site_urls: Mapping[str, str], account: Account) -> Script:
    """How a query is read. JavaScript of the task's gives {"value": any} or {"threw": message}; the rest a string."""
    locator = query.locator.strip()
    if not locator:
        return Script(query.url, None)
    if locator.startswith(FUNCTION):
        return _helper(query, site_urls, account)
    if locator.startswith(LAMBDA):
        body = f"const f = (\n{_expression(locator.removeprefix(LAMBDA))}\n);"
        return Script(query.url, _guarded("", f"{body} const value = await (typeof f === 'function' ? f() : f);"))
    if not locator.startswith(_JAVASCRIPT):
        raise malformed(f"unknown locator {locator[:80]!r}")
    preparation = "".join(f"await (\n{_expression(action)}\n); " for action in query.prep_actions)
    return Script(query.url, _guarded(preparation, f"const value = await (\n{_expression(locator)}\n);"))


def call_of(source: str) -> tuple[str, list[str]]:
    """Name and string arguments of a helper's call; `__page__` is among them as it is."""
    match = _CALL.fullmatch(source)
    if match is None:
        raise malformed(f"{source[:80]!r} is no call of a helper function")
    arguments, rest = [], match[2]
    while rest.strip():
        argument = _ARGUMENT.match(rest)
        if argument is None:
            raise malformed(f"the arguments of {source[:80]!r} are no plain strings")
        arguments.append(next(group for group in argument.groups()[:3] if group is not None))
        rest = rest[argument.end() :]
    return match[1], arguments


def post_url(url: str) -> str:
    """WebArena's reddit_get_post_url: the address of the post that a forum's page belongs to."""
    parts = urlsplit(url)
    segments = parts.path.split("/")
    if len(segments) < 4 or segments[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{segments[2]}/{segments[3]}/"


def _expression(source: str) -> str:
    return source.strip().rstrip(";").rstrip()


def _guarded(preparation: str, body: str) -> str:
    """A function that keeps what the task's code throws apart from what keeps it from running at all."""
    prepare = f"try {{ {preparation} }} catch {{}}" if preparation else ""
    give = "return {value: value === undefined ? null : value};"
    return f"async () => {{ {prepare} try {{ {body} {give} }} catch (error) {{ return {{threw: String(error)}}; }} }}"


# ---- WebArena's helper functions -------------------------------------------------------------------------------------
_REVIEWS = {
    "shopping_get_sku_latest_review_author": "last.nickname",
    "shopping_get_sku_latest_review_rating": "String(last.ratings[0].percent)",
    "shopping_get_sku_latest_review_text": "last.detail",
    "shopping_get_sku_latest_review_title": "last.title",
}
_ROLE = """(name) => {
  const accounts = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const index = accounts.findIndex((account) => account.outerText === "@" + name);
  const role = document.querySelectorAll("td.col-max-role span")[index];
  return role ? role.outerText : "";
}"""
_TEXT = """(selector) => {
  try { return document.querySelector(selector).textContent; } catch { return ""; }
}"""
_ASK_SHOP = """async ({base, account, path}) => {
  const ask = async (address, options) => {
    const response = await fetch(base + address, options);
    if (!response.ok) throw new Error(address + " answered " + response.status);
    return response.json();
  };
  const json = {"Content-Type": "application/json"};
  const login = {method: "POST", headers: json, body: JSON.stringify(account)};
  const token = await ask("/rest/default/V1/integration/admin/token", login);
  return ask(path, {headers: {...json, Authorization: "Bearer " + token}});
}"""
_LATEST_ORDER = (
    "/rest/V1/orders?searchCriteria[sortOrders][0][field]=created_at"
    "&searchCriteria[sortOrders][0][direction]=DESC&searchCriteria[pageSize]=1"
)


def _helper(query: Query, site_urls: Mapping[str, str], account: Account) -> Script:
    name, arguments = call_of(query.locator.strip().removeprefix(FUNCTION))
    match name, arguments:
        case "gitlab_get_project_memeber_role", ["__page__", account_name]:
            return Script(query.url, _called(_ROLE, account_name))
        case "get_query_text", ["__page__", selector]:
            return Script(query.url, _called(_TEXT, selector))
        case "get_query_text_lowercase", ["__page__", selector]:
            return Script(query.url, f"{_called(_TEXT, selector)}.toLowerCase()")
        case "shopping_get_latest_order_url", []:
            give = "base + '/sales/order/view/order_id/' + parseInt(found.items[0].increment_id, 10) + '/'"
            return _of_shop(_LATEST_ORDER, give, site_urls, account)
        case _, [sku] if name in _REVIEWS:
            give = f"found.length ? ((last) => {_REVIEWS[name]})(found[found.length - 1]) : ''"
            return _of_shop(f"/rest/V1/products/{quote(sku, safe='')}/reviews", give, site_urls, account)
    raise malformed(f"unknown helper function, or wrong arguments: {query.locator[:80]!r}")


def _of_shop(path: str, give: str, site_urls: Mapping[str, str], account: Account) -> Script:
    """Asks the shop's API from a page of the shop, where the browser may reach it."""
    base = site_urls.get(_SHOP, "").rstrip("/")
    if not base:
        raise malformed(f"the rule asks the shop, but has no address for {_SHOP}")
    question = {"base": base, "account": {"username": account.username, "password": account.password}, "path": path}
    javascript = f"async () => {{ const base = {json.dumps(base)}; const found = await {_called(_ASK_SHOP, question)};"
    return Script(f"{base}/robots.txt", f"{javascript} return {give}; }}")


def _called(function: str, argument: object) -> str:
    return f"({function})({json.dumps(argument)})"
