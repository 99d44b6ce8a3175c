"""Checks what a session asks of its browser context."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from webagent.env.v1 import env_pb2

from webagent_env import errors
from webagent_env.config import SessionsConfig
from webagent_env.options import ContextOptions
from webagent_env.policy import entry

_LOCALE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_MOST_HEADERS = 64
_MOST_HOSTS = 256
_MOST_STATE_BYTES = 1 << 20
# Set by the connection, not by a page's request.
_REFUSED_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "proxy-authorization"}

# The last second that a cookie may expire in, that of the year 9999.
_LAST_EXPIRY = 253_402_300_799


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("must begin with http:// or https:// and name a host")
    return text


_WebAddress = Annotated[str, AfterValidator(_web_address)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Cookie(_Strict):
    name: str
    value: str
    domain: str | None = Field(default=None, min_length=1)
    path: str | None = Field(default=None, pattern="^/")
    url: _WebAddress | None = None
    expires: float | None = None
    http_only: bool | None = Field(default=None, alias="httpOnly")
    secure: bool | None = None
    same_site: Literal["Strict", "Lax", "None"] | None = Field(default=None, alias="sameSite")

    @model_validator(mode="after")
    def _check(self) -> _Cookie:
        if self.url is None and (self.domain is None or self.path is None):
            raise ValueError("needs domain and path, or url")
        if self.url is not None and (self.domain is not None or self.path is not None):
            raise ValueError("has url besides domain or path")
        if self.expires is not None and self.expires != -1 and not 0 < self.expires <= _LAST_EXPIRY:
            raise ValueError(f"expires must be -1, or seconds up to {_LAST_EXPIRY}")
        return self


class _Item(_Strict):
    name: str
    value: str


class _Origin(_Strict):
    origin: _WebAddress
    local_storage: list[_Item] = Field(alias="localStorage")


class _StorageState(_Strict):
    model_config = ConfigDict(extra="forbid")
    cookies: list[_Cookie] = []
    origins: list[_Origin] = []


def context_options(
    options: env_pb2.SessionOptions, viewport: tuple[int, int], limits: SessionsConfig
) -> ContextOptions:
    """The context's options, or an error that names the one that is wrong."""
    policy = options.dialogs or (
        env_pb2.DIALOG_POLICY_ACCEPT if limits.dialogs == "accept" else env_pb2.DIALOG_POLICY_DISMISS
    )
    return ContextOptions(
        viewport=viewport,
        locale=_locale(options.locale),
        timezone=_timezone(options.timezone),
        geolocation=_geolocation(options),
        storage_state=_storage_state(options.storage_state_json),
        extra_headers=_headers(dict(options.extra_headers)),
        allowed_hosts=_hosts(list(options.allowed_hosts)),
        allow_goto=options.allow_goto,
        accept_dialogs=policy == env_pb2.DIALOG_POLICY_ACCEPT,
        prompt_text=options.prompt_text,
    )


def _locale(given: str) -> str:
    if given and _LOCALE.fullmatch(given) is None:
        raise errors.invalid_request(f'options.locale {given[:40]!r} is no language tag such as "de-DE"')
    return given or "en-US"


def _timezone(given: str) -> str:
    known = available_timezones()
    # A machine may have no list of zones; Chromium brings its own.
    if given and known and given not in known:
        raise errors.invalid_request(f"options.timezone {given[:60]!r} is no IANA time zone")
    return given or "UTC"


def _geolocation(options: env_pb2.SessionOptions) -> tuple[float, float, float] | None:
    if not options.HasField("geolocation"):
        return None
    place = options.geolocation
    if not (-90 <= place.latitude <= 90 and -180 <= place.longitude <= 180 and place.accuracy >= 0):
        raise errors.invalid_request("options.geolocation needs latitude -90 to 90, longitude -180 to 180")
    return place.latitude, place.longitude, place.accuracy


def _storage_state(given: str) -> str:
    if not given:
        return ""
    if len(given.encode()) > _MOST_STATE_BYTES:
        raise errors.invalid_request(f"options.storage_state_json must not exceed {_MOST_STATE_BYTES} bytes")
    try:
        state = json.loads(given)
    except ValueError as error:
        raise errors.invalid_request(f"options.storage_state_json is no JSON: {error}") from None
    try:
        _StorageState.model_validate(state)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, wrong["loc"])) or 'must be {"cookies": [...], "origins": [...]}'
        raise errors.invalid_request(f"options.storage_state_json: {where}: {wrong['msg']}") from None
    return json.dumps({"cookies": state.get("cookies", []), "origins": state.get("origins", [])})


def _headers(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    if len(given) > _MOST_HEADERS:
        raise errors.invalid_request(f"options.extra_headers has more than {_MOST_HEADERS} entries")
    for name, value in given.items():
        if _HEADER.fullmatch(name) is None or name.lower() in _REFUSED_HEADERS:
            raise errors.invalid_request(f"options.extra_headers: {name[:60]!r} cannot be set")
        if len(value) > 8192 or any(character in value for character in "\r\n\0"):
            raise errors.invalid_request(f"options.extra_headers: the value of {name[:60]!r} cannot be sent")
    return tuple(sorted(given.items()))


def _hosts(given: list[str]) -> tuple[str, ...]:
    if len(given) > _MOST_HOSTS:
        raise errors.invalid_request(f"options.allowed_hosts has more than {_MOST_HOSTS} entries")
    for host in given:
        try:
            entry(host)
        except ValueError as error:
            raise errors.invalid_request(f"options.allowed_hosts: {error}") from None
    return tuple(sorted(set(given)))
