"""Fixtures for the tests of every package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from service_process import Running, StartService, running_service

# Tests run in two processes. Threads of OpenMP wait for each other in loops that keep a core from the very thread they
# wait for; services inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing on a machine that is busy.
settings.register_profile("repository", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repository")


@pytest.fixture(scope="module")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartService]:
    """Starts services by name with settings (`{"server.port": 0}`); they end with the module's last test."""
    with ExitStack() as stack:

        def start(name: str, settings: dict[str, object] | None = None) -> Running:
            log = tmp_path_factory.mktemp(name) / "log"
            return stack.enter_context(running_service(name, log, settings or {}))

        yield start
