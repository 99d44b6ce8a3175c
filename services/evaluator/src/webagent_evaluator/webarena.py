"""WebArena's rules: string_match, url_match, program_html and their conjunctions, in the dialects people publish with.

Everything that needs no judge is decided first. A judge is asked only where its reply decides the verdict, so an
episode that has failed already, and every task whose rule is deterministic, needs none.
"""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from webagent_evaluator import addresses, answers
from webagent_evaluator.dialects import Dialect, Manner, WebArenaRule, mapping, text, texts
from webagent_evaluator.evidence import Pages
from webagent_evaluator.judge import Judge, Kind, Question, agrees
from webagent_evaluator.locators import FUNCTION, LAMBDA, Query, Reading, call_of, post_url
from webagent_evaluator.verdicts import Check, NoVerdictError, malformed
from webagent_evaluator.words import words

_EXCERPT = 400


@dataclass
class Finding:
    """A check under way: what was found without a judge, and what is left to ask one."""

    kind: str
    facts: dict[str, object]
    failures: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def require(self, holds: bool, otherwise: str) -> None:
        """Notes what does not hold."""
        if not holds:
            self.failures.append(otherwise)

    def check(self, passed: bool, explanation: str) -> Check:
        """The decision."""
        return Check(self.kind, passed, json.dumps(self.facts, ensure_ascii=False), explanation)


@dataclass
class Browser:
    """Where the page is: VisualAgentBench's evaluators move the agent's own page about, the others leave it alone."""

    pages: Pages
    moves: bool
    moved_to: str = ""
    moved_url: str = ""

    async def url(self) -> str:
        """Address of the page as it is now."""
        return self.moved_url or await self.pages.final_url()

    async def read(self, query: Query) -> Reading:
        """Reads a page; an empty address is the page as it is now."""
        if not query.url:
            return await self.pages.read(Query(self.moved_to, query.locator, query.prep_actions))
        reading = await self.pages.read(query)
        if self.moves:
            self.moved_to, self.moved_url = query.url, reading.url
        return reading


async def judge_webarena(rule: WebArenaRule, answer: str | None, pages: Pages, judge: Judge) -> list[Check]:
    """The checks that a rule consists of; success is their conjunction."""
    if rule.manner.dialect is Dialect.VERIFIED:
        return await asyncio.to_thread(_verified, rule, answer)
    if "must_" in rule.eval_json:
        await asyncio.to_thread(words, "")  # its model takes a second to load, once
    spec = rule.filled_in()
    if answer is None and rule.unanswered_is_na:
        answer = answers.NOT_ACHIEVABLE
    browser = Browser(pages, moves=not rule.manner.upstream and not rule.manner.strict)
    findings = []
    for kind in texts(spec.get("eval_types"), "eval_types", rule.manner):
        match kind:
            case "string_match":
                findings.append(_string_match(spec, answer, rule.manner))
            case "url_match":
                findings.append(await _url_match(spec, browser, rule.manner))
            case "program_html":
                findings.append(await _program_html(spec, browser, rule.manner))
            case _:
                raise malformed(f"eval_type {kind!r} is unknown")
    if not findings:
        raise malformed("eval_types is empty")
    return await _settle(findings, rule.intent, judge)


def _verified(rule: WebArenaRule, answer: str | None) -> list[Check]:
    try:
        # Slow to load, and an extra of this package.
        from webagent_evaluator.verified import judge_verified  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = f"the dialect needs the package webarena-verified: install webagent-evaluator[verified] ({error})"
        raise NoVerdictError("RULE_UNSUPPORTED", message) from error
    return judge_verified(rule, answer)


async def _settle(findings: list[Finding], intent: str, judge: Judge) -> list[Check]:
    """Turns findings into checks, asking what is left to ask unless the episode has failed already."""
    failed = any(finding.failures for finding in findings)
    checks = []
    for finding in findings:
        if finding.failures:
            checks.append(finding.check(False, finding.failures[0]))
        elif finding.questions and failed:
            checks.append(finding.check(False, "No judge was asked: the episode has failed another check."))
        else:
            check = await _ask(finding, intent, judge)
            failed = failed or not check.passed
            checks.append(check)
    return checks


async def _ask(finding: Finding, intent: str, judge: Judge) -> Check:
    for question in finding.questions:
        exchange = await judge.ask(question, intent)
        if not agrees(question, exchange.reply):
            return finding.check(False, f"The judge says that {question.answer[:80]!r} is not what was asked for.")
    by = "The judge agrees." if finding.questions else "Everything that the rule asks for is there."
    return finding.check(True, by)


# ---- string_match ----------------------------------------------------------------------------------------------------
def _string_match(spec: Mapping[str, object], answer: str | None, manner: Manner) -> Finding:
    references = mapping(spec.get("reference_answers"), "reference_answers")
    finding = Finding("string_match", {"answer": answer, "references": references})
    if answer is None:
        finding.require(False, "The agent gave no answer.")
        return finding
    cleaned = answers.clean(answer, manner)
    for rule, value in references.items():
        if rule == "fuzzy_match":
            _fuzzy_answer(finding, spec, value, cleaned, manner)
        else:
            _compare(finding, rule, value, cleaned, manner, either=manner.strict or not manner.upstream)
    return finding


def _fuzzy_answer(finding: Finding, spec: Mapping[str, object], value: object, answer: str, manner: Manner) -> None:
    if value != answers.NOT_ACHIEVABLE:
        _fuzzy(finding, value, answer, manner)
    elif not answers.equal(answers.NOT_ACHIEVABLE, answer, manner):
        reason = text(spec.get("string_note"), "string_note", manner)
        finding.questions.append(Question(Kind.UNACHIEVABLE, reason, answer))


def _fuzzy(finding: Finding, value: object, found: str, manner: Manner) -> None:
    references = texts(value, "fuzzy_match", manner)
    for reference in references if manner.upstream else [", ".join(references)]:
        if reference.strip().lower() != found.strip().lower():
            finding.questions.append(Question(Kind.FUZZY, reference, found))


def _compare(finding: Finding, rule: str, value: object, found: str, manner: Manner, *, either: bool) -> None:
    """One rule about a text, of those that need no judge; `either` if must_include may hold alternatives."""
    match rule:
        case "exact_match":
            wanted = text(value, rule, manner)
            finding.require(answers.equal(wanted, found, manner), f"It is not {wanted!r}.")
        case "must_include":
            items = texts(value, rule, manner)
            for item in items:
                there = answers.includes(item, found, manner, lone=len(items) == 1, either=either)
                finding.require(there, f"It does not include {item!r}.")
        case "must_exclude":
            for item in texts(value, rule, manner):
                finding.require(answers.excludes(item, found, manner), f"It includes {item!r}.")
        case "one_of":
            options = texts(value, rule, manner)
            there = any(answers.clean(option, manner) in found for option in options)
            finding.require(there, f"It includes none of {options}.")
        case "required_values":
            number = answers.whole_number(found)
            for condition in texts(value, rule, manner):
                holds = number is not None and answers.satisfies(number, condition)
                finding.require(holds, f"It is no whole number {condition}.")
        case _:
            raise malformed(f"the rule {rule!r} is unknown")


# ---- url_match -------------------------------------------------------------------------------------------------------
async def _url_match(spec: Mapping[str, object], browser: Browser, manner: Manner) -> Finding:
    reference = text(spec.get("reference_url"), "reference_url", manner)
    default = addresses.default_note(manner)
    note = spec.get("url_note", default)
    if note is None and manner.strict:
        note = default
    url = await browser.url()
    finding = Finding("url_match", {"url": url, "reference_url": reference, "url_note": note})
    finding.require(addresses.matches(reference, note, url, manner), f"The agent ended on {url}.")
    return finding


# ---- program_html ----------------------------------------------------------------------------------------------------
async def _program_html(spec: Mapping[str, object], browser: Browser, manner: Manner) -> Finding:
    targets = spec.get("program_html")
    if not isinstance(targets, list):
        raise malformed("program_html is no list")
    seen: list[object] = []
    finding = Finding("program_html", {"targets": seen})
    for index, item in enumerate(targets):
        target = mapping(item, f"program_html[{index}]")
        locator = text(target.get("locator"), "locator", manner)
        actions = tuple(texts(target.get("prep_actions", []), "prep_actions", manner))
        reading = await browser.read(Query(await _address(target, browser, manner), locator, actions))
        found = _found(locator, reading.value, manner)
        wanted = mapping(target.get("required_contents"), "required_contents")
        seen.append({
            "url": reading.url,
            "locator": locator,
            "found": found if found is None else found[:_EXCERPT],
            "required_contents": wanted,
        })  # fmt: skip
        if found is None:
            finding.require(False, f"There is nothing at {locator!r} of {reading.url}.")
        else:
            # A page may be long, and the words of half a megabyte take half a second.
            await asyncio.to_thread(_compare_contents, finding, wanted, found, manner)
    return finding


def _compare_contents(finding: Finding, wanted: Mapping[str, object], found: str, manner: Manner) -> None:
    rules = ("exact_match", "must_include", "must_exclude", "required_values", "fuzzy_match")
    rule = next((name for name in rules if name in wanted), None)
    if rule is None:
        raise malformed(f"required_contents {list(wanted)} are unknown")
    if rule == "fuzzy_match":
        _fuzzy(finding, wanted[rule], found, manner)
    elif rule == "must_include":
        for item in texts(wanted[rule], rule, manner):
            there = answers.includes(item, found, manner, lone=False, either=True)
            finding.require(there, f"The page does not include {item!r}.")
    else:
        _compare(finding, rule, wanted[rule], found, manner, either=True)


async def _address(target: Mapping[str, object], browser: Browser, manner: Manner) -> str:
    """Where a target is read; empty for the page as it is."""
    url = text(target.get("url"), "url", manner)
    if url == "last":
        return ""
    if url.startswith(("http://", "https://")):
        return url
    if not url.startswith(FUNCTION):
        raise malformed(f"{url[:80]!r} is no address; does its site have one?")
    name, arguments = call_of(url.removeprefix(FUNCTION))
    match name, arguments:
        case "reddit_get_post_url", [argument]:
            return post_url(argument.replace("__last_url__", await browser.url()))
        case "shopping_get_latest_order_url", []:
            return str((await browser.pages.read(Query(locator=url))).value)
    raise malformed(f"unknown helper function, or wrong arguments: {url[:80]!r}")


def _found(locator: str, value: object, manner: Manner) -> str | None:
    """A reading as the text that is compared; None if the page is not one that the rule can be about."""
    if not locator.strip() or locator.startswith(FUNCTION):
        found = str(value)
    elif locator.startswith(LAMBDA):
        given = value.get("value") if isinstance(value, dict) else None
        return str(given) if given else None
    else:
        found = str(value.get("value")) if isinstance(value, dict) and "threw" not in value else ""
    return html.unescape(found) if manner.upstream else found
