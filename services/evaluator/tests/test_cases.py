"""The handed cases (cases/README.md): every rule agrees with the published evaluators, and strictly with what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from webagent_evaluator.dialects import Dialect, Manner, WebArenaRule
from webagent_evaluator.evidence import Evidence, Pages, StoredPages
from webagent_evaluator.judge import NoJudge
from webagent_evaluator.verdicts import NoVerdictError
from webagent_evaluator.webarena import judge_webarena

Case = dict[str, Any]
CASES: list[Case] = [
    json.loads(line) for line in (Path(__file__).parent / "cases" / "evaluator.jsonl").open(encoding="utf-8")
]
SITES = {
    "__SHOPPING__": "http://shop.test:7770",
    "__SHOPPING_ADMIN__": "http://shop.test:7780/admin",
    "__REDDIT__": "http://forum.test:9999",
    "__GITLAB__": "http://gitlab.test:8023",
    "__MAP__": "http://map.test:3000",
}


def reads_pages(case: Case) -> bool:
    return case["kind"] == "program_html" or "html" in case["rule"]


def name(case: Case) -> str:
    return f"{case['id']}-{case['rule']}"


def rule_of(case: Case, *, strict: bool) -> WebArenaRule:
    sites = SITES if case["dialect"] == "verified" else case.get("site_urls", {})
    manner = Manner(Dialect(case["dialect"]), strict)
    return WebArenaRule(manner, json.dumps(case["eval"]), case["intent"], sites)


def wanted(case: Case, *, strict: bool) -> str:
    return (case.get("sane_expected", case["expected"]) if strict else case["expected"])["verdict"]


async def outcome(case: Case, pages: Pages, *, strict: bool) -> str:
    try:
        checks = await judge_webarena(rule_of(case, strict=strict), case["input"]["answer"], pages, NoJudge())
    except NoVerdictError:
        return "invalid"
    return "success" if all(check.passed for check in checks) else "failure"


@pytest.mark.parametrize("case", [case for case in CASES if not reads_pages(case)], ids=name)
async def test_a_rule_that_reads_no_page(case: Case) -> None:
    pages = StoredPages(Evidence(case["input"]["final_url"]))
    assert await outcome(case, pages, strict=False) == wanted(case, strict=False)
    assert await outcome(case, pages, strict=True) == wanted(case, strict=True)
