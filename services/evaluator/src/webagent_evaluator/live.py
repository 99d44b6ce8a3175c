"""A session as a rule reads it: each thing once, and kept as evidence."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_evaluator.evidence import Evidence, parse
from webagent_evaluator.locators import Account, Query, Reading, script_for
from webagent_evaluator.sessions import Session
from webagent_evaluator.verdicts import NoVerdictError


class LivePages:
    """The pages of a session, and of the sites that its browser reaches."""

    def __init__(self, session: Session, site_urls: Mapping[str, str], account: Account, evidence: Evidence) -> None:
        self._session = session
        self._site_urls = site_urls
        self._account = account
        self._evidence = evidence

    async def final_url(self) -> str:
        """Address of the page that the agent ended on."""
        if self._evidence.final_url is None:
            self._evidence.final_url = await self._session.url()
        return self._evidence.final_url

    async def read(self, query: Query) -> Reading:
        """What the query asks for."""
        reading = self._evidence.readings.get(query)
        if reading is None:
            value, url = await self._session.read(script_for(query, self._site_urls, self._account))
            reading = self._evidence.readings[query] = Reading(_parse(value, url), url)
        return reading


def _parse(value: str, url: str) -> object:
    try:
        return parse(value)
    except (ValueError, RecursionError) as error:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"what {url} gave is no JSON: {error}") from error
