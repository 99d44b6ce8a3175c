"""Configuration of sites and of suites in WebArena's task format."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, field_validator
from webagent_runtime.config import Config

_DEFAULT_PORTS = {"http": 80, "https": 443}


class LoginConfig(Config):
    """How one signs in: a page with two fields, and a page that only those who are signed in may see."""

    path: str = Field(description="page of the login form, below the site's url")
    username_field: str = Field(description="CSS selector of the field for the name")
    password_field: str = Field(description="CSS selector of the field for the password; Enter is pressed there")
    check_path: str = Field(description="page that redirects or refuses whoever is not signed in")
    check_text: str = Field(
        default="", description="text of that page by which it is known; empty: its address will do"
    )


class SiteConfig(Config):
    """One site."""

    url: str = Field(description="base address, such as http://shop.internal:7770")
    extra_hosts: tuple[str, ...] = Field(default=(), description="further hosts that its pages need")
    username: str = Field(default="", description="account; empty: nobody signs in")
    password: str = Field(default="", repr=False, description="its password")
    login: LoginConfig | None = Field(
        default=None, description="how one signs in; unset: as WebArena's site of that name"
    )
    health_path: str = Field(default="/", description="page that answers below 500 when the site is well")
    timeout_seconds: float = Field(default=30.0, gt=0, description="bound on a health check, a login or loading a page")
    max_sessions: int = Field(default=64, ge=1, description="sessions at the same time")
    reset_url: str = Field(default="", description="asked (POST) after each task that changes state; empty: never")
    reset_timeout_seconds: float = Field(default=600.0, gt=0, description="bound on a reset, until the site is well")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and name a host")
        # As the browser will say it, for the addresses of rules are compared with what it says.
        netloc = parts.netloc.lower()
        if parts.port in {None, _DEFAULT_PORTS[parts.scheme]}:
            netloc = re.sub(r":\d*$", "", netloc)
        return urlunsplit(parts._replace(netloc=netloc)).rstrip("/")


# The forms of WebArena's sites (Magento's shop and admin, Postmill, GitLab).
_FIELDS = ("path", "username_field", "password_field", "check_path", "check_text")
WEBARENA_LOGINS = {
    name: LoginConfig.model_validate(dict(zip(_FIELDS, values, strict=True)))
    for name, values in {
        "shopping": ("/customer/account/login/", "#email", "#pass", "/wishlist/", ""),
        "shopping_admin": ("/", "#username", "#login", "/dashboard", "Dashboard"),
        "reddit": ("/login", "[name=_username]", "[name=_password]", "/submit", ""),
        "gitlab": ("/users/sign_in", "#user_login", "#user_password", "/-/profile", ""),
    }.items()
}


class WebArenaConfig(Config):
    """A suite in WebArena's task format."""

    name: str = Field(default="webarena-lite", description="name of the suite")
    tasks: str = Field(
        default="webarena-lite",
        description='"webarena-lite" (165 tasks), "webarena" (812 tasks), or a JSON file in the same format',
    )
    dialect: Literal["webarena", "vab_lite", "verified"] = Field(
        default="vab_lite", description="whose reading of the rules the evaluator is to take"
    )
    sites: dict[str, SiteConfig] = Field(
        description="the sites by WebArena's names; tasks on others are left out of the suite"
    )
    viewport: tuple[int, int] = Field(default=(1280, 720), description="width and height in CSS pixels")
