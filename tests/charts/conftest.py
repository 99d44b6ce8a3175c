"""The programs that render and lint, fetched once."""

from __future__ import annotations

import chart_tools
import pytest


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    """Fetches what is missing; nothing when all is there."""
    chart_tools.fetch()
