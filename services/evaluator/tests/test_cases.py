"""In each case of cases/README.md the dialect agrees with its published evaluator, and strictly with what is right."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from webagent_evaluator.dialects import Dialect, Manner, WebArenaRule
from webagent_evaluator.evidence import Evidence, Pages, StoredPages
from webagent_evaluator.judge import NoJudge
from webagent_evaluator.live import LivePages
from webagent_evaluator.locators import Account
from webagent_evaluator.sessions import Session, Sessions
from webagent_evaluator.verdicts import NoVerdictError
from webagent_evaluator.webarena import judge_webarena
from webagent_runtime.config import ClientConfig

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


# ---- rules that read pages, in a real browser ------------------------------------------------------------------------
TIMEOUT = 100


class Sites:
    """Stands for the sites: one port each, serving a case's pages at a time."""

    def __init__(self, stack: ExitStack) -> None:
        self._pages: dict[str, tuple[int, str]] = {}
        self._ports = {site: self._serve(stack) for site in (
            "http://forum.test:9999", "http://gitlab.test:8023", "http://map.test:3000", "http://shop.test:7770",
            "http://shop.test:7780",
        )}  # fmt: skip

    def hold(self, case: Case) -> Case:
        """Serves a case's pages, and gives the case with the addresses that they are served at."""
        text = json.dumps(case)
        for site, port in self._ports.items():
            text = text.replace(site, f"http://127.0.0.1:{port}")
        moved: Case = json.loads(text)
        given = moved["input"]
        pages = [given["page"], *given.get("pages", [])]
        self._pages = {page["url"]: (page.get("status", 200), page["html"]) for page in pages}
        return moved

    def _serve(self, stack: ExitStack) -> int:
        sites = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = f"http://127.0.0.1:{self.server.server_port}{self.path}"  # type: ignore[attr-defined]
                status, html = sites._pages.get(url, (404, "<h1>Not found</h1>"))
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(html.encode())

            def log_message(self, *_: object) -> None:
                """Stays quiet."""

        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        return server.server_port


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(stack)


@pytest.fixture
async def session(where: tuple[str, str]) -> AsyncIterator[Session]:
    sessions = Sessions(ClientConfig(), limit=1)
    async with sessions.session(*where, TIMEOUT) as opened:
        yield opened
    await sessions.close()


async def go(session: Session, url: str) -> None:
    """Takes the agent's page to an address, which may be the one where it is."""
    await session.read_in_place(f"void (window.left = true, setTimeout(() => location.assign({json.dumps(url)})))")
    loaded = "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
    while await session.read_in_place(f"window.left ? 'not yet' : {loaded}") != ("null", url):
        pass


@pytest.mark.parametrize("case", [case for case in CASES if reads_pages(case)], ids=name)
async def test_a_rule_that_reads_pages(case: Case, sites: Sites, session: Session) -> None:
    case = sites.hold(case)
    await go(session, case["input"]["page"]["url"])
    evidence = Evidence()
    pages = LivePages(session, case.get("site_urls", {}), Account("admin", "admin1234"), evidence)
    assert await outcome(case, pages, strict=False) == wanted(case, strict=False)
    assert await outcome(case, pages, strict=True) == wanted(case, strict=True)
    assert await outcome(case, StoredPages(evidence), strict=False) == wanted(case, strict=False)
