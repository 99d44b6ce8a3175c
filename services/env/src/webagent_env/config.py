"""Configuration of the env service. Every wait has its bound here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator
from webagent_runtime.config import Config, ServerConfig, TelemetryConfig

from webagent_env.policy import entry
from webagent_env.webarena_config import WebArenaConfig


def _default_state_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"webagent-env-{os.getuid()}"


class BrowserConfig(Config):
    """The Chromium that all sessions share."""

    sessions_before_restart: int = Field(
        default=2000,
        ge=1,
        description="then further sessions get a new browser; the old one ends with its last",
    )
    memory_before_restart_mib: int = Field(default=8192, ge=256, description="the same, by the browser's memory")
    memory_check_seconds: float = Field(default=30.0, gt=0, description="how often that is measured, at most")

    executable: Path | None = Field(
        default=None, description="Chromium's program; unset: Debian's, else the one that Playwright downloaded"
    )
    sandbox: bool = Field(
        default=False, description="Chromium's own sandbox; needs user namespaces, and not to run as root"
    )
    launch_timeout_seconds: float = Field(default=30.0, gt=0, description="bound on starting the browser")
    close_timeout_seconds: float = Field(
        default=5.0, gt=0, description="bound on closing a context or the browser in order; then it is killed"
    )


class SessionsConfig(Config):
    """Limits of sessions. Durations are defaults that a session's options may replace, up to `max_lifetime_seconds`."""

    capacity: int = Field(default=16, ge=1, le=1024, description="sessions held at the same time")
    lease_seconds: float = Field(default=120.0, gt=0, description="a session without calls is closed after this")
    lifetime_seconds: float = Field(default=1800.0, gt=0, description="a session is closed after this in any case")
    max_lifetime_seconds: float = Field(
        default=86_400.0, gt=0, le=1_728_000, description="bound on what a session may ask for"
    )
    reset_timeout_seconds: float = Field(default=30.0, gt=0, description="bound on opening a session's task")
    step_timeout_seconds: float = Field(default=30.0, gt=0, description="bound on one action, settling and reading")
    settle_timeout_seconds: float = Field(default=3.0, gt=0, description="bound on waiting until a page is quiet")
    probe_timeout_seconds: float = Field(default=15.0, gt=0, description="bound on one probe")
    max_steps: int = Field(default=500, ge=1, description="then the episode is truncated; recorded answers need memory")
    max_observation_bytes: int = Field(default=262_144, ge=1024, le=4_194_304, description="bound on a page's text")
    dialogs: Literal["accept", "dismiss"] = Field(
        default="accept", description="answer to alert, confirm and prompt; the next observation tells of them"
    )

    warm_contexts: int = Field(
        default=1, ge=0, le=64, description="browser contexts kept ready for sessions like the one before"
    )

    @model_validator(mode="after")
    def _check_order(self) -> SessionsConfig:
        if self.lease_seconds > self.lifetime_seconds:
            raise ValueError("lease_seconds must not exceed lifetime_seconds")
        if self.lifetime_seconds > self.max_lifetime_seconds:
            raise ValueError("lifetime_seconds must not exceed max_lifetime_seconds")
        if self.settle_timeout_seconds >= self.step_timeout_seconds:
            raise ValueError("settle_timeout_seconds must be below step_timeout_seconds")
        return self


class EgressConfig(Config):
    """What pages may reach, besides their own task's hosts. Loopback, private and metadata addresses must be named."""

    allowed_hosts: tuple[str, ...] = Field(
        default=(), description='hosts that every session may reach: "host", "host:port", "*.domain" or "*"'
    )
    sessions_may_name_private: bool = Field(
        default=False, description="whether a session's allowed_hosts may name loopback and private addresses"
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _check_entries(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            entry(host)
        return hosts


class DownloadsConfig(Config):
    """What a session may download. Its files are kept until it is closed."""

    max_files: int = Field(default=16, ge=0, le=1000, description="files that a session may download; 0: none")
    max_total_mib: int = Field(default=16, ge=1, le=65_536, description="what they may have in all")


class SuitesConfig(Config):
    """What tasks there are."""

    miniwob: bool = Field(default=True, description="the pages of the package `miniwob`")
    arena: bool = Field(default=True, description="five sites of the service's own with tasks in WebArena's manner")
    webarena: tuple[WebArenaConfig, ...] = Field(default=(), description="suites in WebArena's task format")
    files: tuple[Path, ...] = Field(default=(), description="suites of one's own, a YAML file each")


class EnvConfig(Config):
    """The whole configuration; every key has a default."""

    server: ServerConfig = ServerConfig(port=50051)
    telemetry: TelemetryConfig = TelemetryConfig()
    browser: BrowserConfig = BrowserConfig()
    sessions: SessionsConfig = SessionsConfig()
    egress: EgressConfig = EgressConfig()
    downloads: DownloadsConfig = DownloadsConfig()
    suites: SuitesConfig = SuitesConfig()
    state_directory: Path = Field(
        default_factory=_default_state_directory,
        description="profiles of running browsers; what a killed predecessor left there is removed at start",
    )
