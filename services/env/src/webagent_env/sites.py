"""Web sites that tasks play on: reachable or not, signed in to, shared by as many sessions as they bear, and reset.

A site that is down or broken is told before a session starts, so that its tasks are invalid and no failures. A login
belongs to one session at a time, because an agent may sign out; it is checked each time before it is used again, and
renewed when it is stale. Two tasks that change a site's state never run at the same time. Where the site has a reset
hook, nobody enters after such a task until those who are there have left, the hook was called and the site is well.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import structlog
from playwright.async_api import BrowserContext, Error
from webagent_runtime.errors import ServiceError

from webagent_env import errors
from webagent_env.browser import Browser
from webagent_env.egress import Egress
from webagent_env.policy import Policy, entry
from webagent_env.webarena_config import WEBARENA_LOGINS, LoginConfig, SiteConfig

log = structlog.get_logger()

_HEALTHY_SECONDS = 5.0
_ATTEMPTS = 2
_PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class _Login:
    state: dict[str, Any]


@dataclass(slots=True)
class Site:
    """One site and who uses it now."""

    name: str
    config: SiteConfig
    sessions: int = 0
    changing: bool = False
    needs_reset: bool = False
    reset_failure: str = ""
    resetting: asyncio.Task[None] | None = None
    _free: list[_Login] = field(default_factory=list)
    _well_until: float = 0.0

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where its pages may go, as entries of an allow-list."""
        parts = urlsplit(self.config.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return (f"{host}:{port}", *self.config.extra_hosts)

    @property
    def login(self) -> LoginConfig | None:
        """How one signs in, or None if nobody does."""
        if not self.config.username:
            return None
        return self.config.login or WEBARENA_LOGINS.get(self.name)

    def enter(self, *, changes: bool) -> None:
        """Takes a place on the site, or says that there is none."""
        if self.needs_reset:
            self._reset_once_empty()
            if self.reset_failure:
                raise errors.site_unavailable(self.name, f"its reset failed and is tried again: {self.reset_failure}")
            raise errors.site_busy(self.name, "it is being reset, or will be once its sessions have ended")
        if self.sessions >= self.config.max_sessions:
            raise errors.site_busy(self.name, f"its {self.config.max_sessions} sessions are taken")
        if changes and self.changing:
            raise errors.site_busy(self.name, "another task is changing its state")
        self.sessions += 1
        self.changing = self.changing or changes

    def leave(self, *, changes: bool, played: bool) -> None:
        """Gives the place back; after a task that changes state was played, the site needs a reset."""
        self.sessions -= 1
        if changes:
            self.changing = False
            self.needs_reset = self.needs_reset or (played and bool(self.config.reset_url))
        self._reset_once_empty()

    async def require_health(self, *, again: bool = False) -> None:
        """Returns if the site is well; else no session can go on. `again`: what is known of a moment ago won't do."""
        if time.monotonic() < self._well_until and not again:
            return
        address = self.config.url + self.config.health_path
        try:
            status, _, _ = await self._get(address, {})
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.site_unavailable(self.name, f"{address} does not answer: {error!r}") from error
        if status >= 500:
            raise errors.site_unavailable(self.name, f"{address} answers {status}")
        self._well_until = time.monotonic() + _HEALTHY_SECONDS

    async def take_login(self, browser: Browser) -> dict[str, Any]:
        """The storage of somebody who is signed in, for one session; empty where nobody signs in."""
        login = self.login
        if login is None:
            return {}
        while self._free:
            free = self._free.pop()
            if await self._signed_in(login, free.state):
                return free.state
            log.info("login_stale", site=self.name)
        why = ""
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(self.config.timeout_seconds):
                    state = await self._sign_in(login, browser)
                if await self._signed_in(login, state):
                    return state
                why = f"{login.check_path} still asks to sign in"
            except (TimeoutError, Error) as error:
                why = str(error).splitlines()[0] if str(error) else "no answer"
        raise errors.site_unavailable(self.name, f"signing in failed {_ATTEMPTS} times: {why}")

    def give_login(self, state: dict[str, Any]) -> None:
        """Keeps a login for the next session."""
        if state:
            self._free.append(_Login(state))

    async def stop(self) -> None:
        """Ends a reset that is under way."""
        if self.resetting is not None:
            self.resetting.cancel()
            await asyncio.gather(self.resetting, return_exceptions=True)

    async def _sign_in(self, login: LoginConfig, browser: Browser) -> dict[str, Any]:
        egress = Egress(Policy(tuple(entry(host) for host in self.hosts)))
        await egress.start()
        try:
            proxy = {"server": egress.address, "bypass": "<-loopback>"}
            context, _ = await browser.context(accept_downloads=False, proxy=proxy)
            try:
                return await self._fill_in_form(login, context)
            finally:
                await context.close()
        finally:
            await egress.stop()

    async def _fill_in_form(self, login: LoginConfig, context: BrowserContext) -> dict[str, Any]:
        page = await context.new_page()
        await page.goto(self.config.url + login.path, wait_until="load")
        await page.fill(login.username_field, self.config.username)
        await page.fill(login.password_field, self.config.password)
        async with page.expect_navigation(wait_until="load"):
            await page.press(login.password_field, "Enter")
        log.info("signed_in", site=self.name)
        return dict(await context.storage_state())

    async def _signed_in(self, login: LoginConfig, state: dict[str, Any]) -> bool:
        address = self.config.url + login.check_path
        host = urlsplit(address).hostname or ""
        cookies = {
            str(cookie["name"]): str(cookie["value"])
            for cookie in state.get("cookies", ())
            if host == cookie["domain"].lstrip(".") or host.endswith("." + cookie["domain"].lstrip("."))
        }
        try:
            status, final, text = await self._get(address, cookies)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.site_unavailable(self.name, f"{address} does not answer: {error!r}") from error
        if status >= 400:
            return False
        if login.check_text:
            return login.check_text in text
        return urlsplit(final).path.rstrip("/") == urlsplit(address).path.rstrip("/")

    async def _get(self, address: str, cookies: dict[str, str]) -> tuple[int, str, str]:
        timeout = aiohttp.ClientTimeout(total=self.config.timeout_seconds)
        jar = aiohttp.CookieJar(unsafe=True)  # sites may have addresses instead of names
        options: dict[str, Any] = {"timeout": timeout, "cookies": cookies, "cookie_jar": jar}
        async with aiohttp.ClientSession(**options) as session, session.get(address) as response:
            return response.status, str(response.url), await response.text(errors="replace")

    def _reset_once_empty(self) -> None:
        under_way = self.resetting is not None and not self.resetting.done()
        if self.needs_reset and self.sessions == 0 and not under_way:
            self.resetting = asyncio.create_task(self._reset(), name=f"reset-{self.name}")
            self.resetting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _reset(self) -> None:
        self._free.clear()
        unbounded = aiohttp.ClientTimeout(total=None)  # the bound is the reset's
        try:
            async with asyncio.timeout(self.config.reset_timeout_seconds):
                async with (
                    aiohttp.ClientSession(timeout=unbounded) as session,
                    session.post(self.config.reset_url) as response,
                ):
                    response.raise_for_status()
                await self._until_well()
        except Exception as error:
            late = f"it was not well within {self.config.reset_timeout_seconds:g} s"
            self.reset_failure = late if isinstance(error, TimeoutError) else repr(error)
            log.exception("site_not_reset", site=self.name)
        else:
            self.needs_reset, self.reset_failure = False, ""
            log.info("site_reset", site=self.name)

    async def _until_well(self) -> None:
        while True:
            try:
                return await self.require_health(again=True)
            except ServiceError as error:
                log.info("site_not_well_yet", site=self.name, why=error.message)
            await asyncio.sleep(_PAUSE_SECONDS)


def merged(states: list[dict[str, Any]]) -> str:
    """Several storages as one, as JSON; empty for none."""
    states = [state for state in states if state]
    if not states:
        return ""
    return json.dumps(
        {key: [each for state in states for each in state.get(key, ())] for key in ("cookies", "origins")}
    )


def address_of(site: Site | None, start: str) -> str:
    """A start address, which may be relative to its site."""
    return urljoin(site.config.url + "/", start.lstrip("/")) if site is not None and "://" not in start else start
