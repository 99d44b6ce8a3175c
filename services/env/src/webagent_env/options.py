"""How a session's browser context differs from the next one's; equal options may share warm contexts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What a browser context is made with."""

    viewport: tuple[int, int]
    locale: str = "en-US"
    timezone: str = "UTC"
    # Latitude, longitude, accuracy.
    geolocation: tuple[float, float, float] | None = None
    storage_state: str = ""
    extra_headers: tuple[tuple[str, str], ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allow_goto: bool = False
    accept_dialogs: bool = True
    prompt_text: str = ""

    def for_playwright(self) -> dict[str, Any]:
        """The arguments of `Browser.new_context`."""
        width, height = self.viewport
        options: dict[str, Any] = {
            "viewport": {"width": width, "height": height},
            "locale": self.locale,
            "timezone_id": self.timezone,
            "accept_downloads": False,
        }
        if self.geolocation is not None:
            latitude, longitude, accuracy = self.geolocation
            options["geolocation"] = {"latitude": latitude, "longitude": longitude, "accuracy": accuracy}
            options["permissions"] = ["geolocation"]
        if self.storage_state:
            options["storage_state"] = json.loads(self.storage_state)
        if self.extra_headers:
            options["extra_http_headers"] = dict(self.extra_headers)
        return options

    @property
    def plain(self) -> bool:
        """Whether nothing but the suite's own pages can have been reached, so that wiping undoes everything."""
        return not (self.storage_state or self.allowed_hosts or self.allow_goto)
