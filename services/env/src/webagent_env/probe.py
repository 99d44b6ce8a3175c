"""Reads one value of a session for the evaluator: of the agent's page in place, or of another address beside it.

A page opened beside it is read once it is quiet, by the rule and the bound that hold for the agent's steps; the agent's
own was waited for when it acted. An answer that says that the site failed, or that it was not reached, is no content.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error

from webagent_env import errors
from webagent_env.cdp import DocumentReplacedError, PageGoneError, ScriptError
from webagent_env.context import SessionContext
from webagent_env.egress import MARK
from webagent_env.page import Tab
from webagent_env.session import Session


@dataclass(frozen=True, slots=True)
class Query:
    """What to read; exactly one of the three. An empty `url` means the agent's current page."""

    url: str = ""
    javascript: str | None = None
    selector: str | None = None
    html: bool = False


async def probe(session: Session, query: Query, timeout: float) -> tuple[str, str]:
    """The value as JSON, and the address of the page that it was read from."""
    if query.url and urlsplit(query.url).scheme not in {"http", "https"}:
        raise errors.invalid_request("url must begin with http:// or https://")

    async def work(context: SessionContext) -> tuple[str, str]:
        if query.url:
            return await _elsewhere(context, query, session.spec.settle_timeout)
        return await _in_place(context, query)

    try:
        async with asyncio.timeout(timeout):
            return await session.use(work)
    except TimeoutError:
        raise errors.probe_timeout(timeout) from None
    except ScriptError as error:
        raise errors.probe_failed(str(error)) from None


async def _in_place(context: SessionContext, query: Query) -> tuple[str, str]:
    loop = asyncio.get_running_loop()
    while True:
        tab = await context.active()
        try:
            value = await _value(tab, query)
            return json.dumps(value), tab.page.url
        except DocumentReplacedError:
            # The page is on its way to another one, which is the one to read; the caller's bound ends this.
            await tab.idle(loop.time() + 1.0)


async def _elsewhere(context: SessionContext, query: Query, settle: float) -> tuple[str, str]:
    page = await context.probe_page()
    try:
        tab = await Tab.attach(page, context.scratch)
        response = await page.goto(query.url, wait_until="load", timeout=0)
        if response is not None and (response.status >= 500 or MARK in response.headers):
            raise errors.probe_failed(f"{query.url} answers {response.status}: {(await response.text())[:200]}")
        await tab.finish(settle, None)
        if await tab.failed():
            raise errors.probe_failed(f"{query.url} led to {page.url}, which is an error page")
        value = await _value(tab, query)
        return json.dumps(value), page.url
    except Error as error:
        raise errors.probe_failed(f"{query.url}: {error.message.splitlines()[0]}") from error
    except (PageGoneError, DocumentReplacedError) as error:
        raise errors.probe_failed(f"{query.url} went away while it was read: {error}") from error
    finally:
        await page.close()


async def _value(tab: Tab, query: Query) -> Any:
    if query.javascript is not None:
        return await tab.evaluate(query.javascript)
    if query.selector is not None:
        return await tab.call("texts", query.selector)
    return await tab.call("html")
