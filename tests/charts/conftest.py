"""The programs that render and lint, fetched once, before the first test and outside of its time."""

from __future__ import annotations

from pathlib import Path

import chart_tools
import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetches what is missing if a test from here is going to run."""
    here = Path(__file__).parent
    if not session.config.option.collectonly and any(item.path.is_relative_to(here) for item in session.items):
        chart_tools.fetch()
