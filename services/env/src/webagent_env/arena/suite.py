"""The suite "arena": its sites behind one loopback port, and the worlds that sessions of theirs are in.

    claim ──► reset: a new world, its key in a cookie of the session's context ──► requests find the world by the key
                                                                             └──► release: the world is gone

A task is an intent template; the session's seed chooses the instantiation (see `intents`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from functools import lru_cache

from aiohttp import web
from playwright.async_api import Error

from webagent_env import errors
from webagent_env.arena.intents import Goal, Intent, place_of
from webagent_env.arena.site import Handler, Problem, Site, Visit
from webagent_env.arena.world import Store, World, Worlds
from webagent_env.browser import Browser
from webagent_env.context import SessionContext
from webagent_env.tasks import Claim, Task, WebArenaRule

_COOKIE = "arena"


class ArenaClaim(Claim):
    """A session's world, once it is in one."""

    def __init__(self, living: dict[str, World]) -> None:
        self._living = living
        self.key = ""

    def enter(self, world: World) -> str:
        """Makes the world one that requests can find; its key."""
        self.key = secrets.token_urlsafe(16)
        self._living[self.key] = world
        return self.key

    async def release(self) -> None:
        """The world is gone."""
        world = self._living.pop(self.key, None)
        if world is not None:
            world.close()


class Arena:
    """The suite."""

    name = "arena"
    viewport = (960, 720)
    ended = "() => false"
    hidden: tuple[str, ...] = ()
    init_script = ""
    centres_only = False
    reuses_contexts = True

    def __init__(self, sites: list[Site], stores: list[Store], intents: list[Intent]) -> None:
        self.sites = {site.name: site for site in sites}
        self.intents = {intent.name: intent for intent in intents}
        self.worlds = Worlds({store.name: store for store in stores})
        self._living: dict[str, World] = {}
        self._runner: web.AppRunner | None = None
        self._goals = lru_cache(maxsize=1024)(self._find_goals)
        self.origin = ""

    async def start(self) -> None:
        """Serves the sites on a loopback port."""
        application = web.Application()
        for site in self.sites.values():
            for method, path, handler in site.routes:
                application.router.add_route(method, path, self._answering(site, handler))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.origin = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stops serving."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def tasks(self) -> list[Task]:
        """One for each intent template."""
        return [Task(self.name, intent.name, "+".join(sorted(intent.sites))) for intent in self.intents.values()]

    def hosts(self, task: Task) -> tuple[str, ...]:
        """The suite's own pages."""
        return (self.origin.removeprefix("http://"),)

    async def claim(self, task: Task, browser: Browser) -> ArenaClaim:
        """A place for a world."""
        return ArenaClaim(self._living)

    async def reset(self, context: SessionContext, task: Task, seed: int, claim: Claim) -> str:
        """Makes the session's world and opens the task's start pages in it, each in a tab; the first one is shown."""
        assert isinstance(claim, ArenaClaim)
        intent = self.intents[task.task_id]
        goal = self.goal(task.task_id, seed)
        world = self.worlds.make(place_of(seed)[0])
        if not intent.signed_out:
            world.users.update({name: site.first_user for name, site in self.sites.items() if site.first_user})
        try:
            await context.set_cookie(_COOKIE, claim.enter(world), self.origin)
            first = await context.active()
            for number, start in enumerate(intent.start):
                tab = first if number == 0 else await context.open_tab()
                await tab.page.goto(self._filled(start), wait_until="load")
            context.turn_to(first)
        except Error as error:
            raise errors.browser_unavailable(f"{task} did not start: {error.message}") from error
        return intent.wording(goal)

    def rule(self, task: Task, seed: int) -> WebArenaRule:
        """The instantiation's own."""
        intent, goal = self.intents[task.task_id], self.goal(task.task_id, seed)
        return WebArenaRule(
            eval_json=json.dumps(goal.rule),
            intent=intent.wording(goal),
            dialect="webarena",
            site_urls=tuple(sorted((site.placeholder, self._filled(site.placeholder)) for site in self.sites.values())),
        )

    def goal(self, name: str, seed: int) -> Goal:
        """The instantiation of a template that a seed names."""
        world, index, for_training = place_of(seed)
        goals = self._goals(name, world, for_training)
        return goals[index % len(goals)]

    def _find_goals(self, name: str, number: int, for_training: bool) -> tuple[Goal, ...]:
        world = self.worlds.make(number)
        try:
            return self.intents[name].goals_of(world, for_training=for_training)
        finally:
            world.close()

    def _filled(self, address: str) -> str:
        for site in self.sites.values():
            address = address.replace(site.placeholder, self.origin + site.prefix)
        return address

    def _answering(self, site: Site, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Answers one route, in the world of the session that asks."""

        async def answer(request: web.Request) -> web.StreamResponse:
            world = self._living.get(request.cookies.get(_COOKIE, ""))
            if world is None:
                raise web.HTTPForbidden(text="This page belongs to a session of the arena.")
            form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
            visit = Visit(site, world, request, form)
            try:
                return handler(visit)
            except Problem as problem:
                # Said on the page that the form is on.
                back = request.headers.get("Referer", "").partition(self.origin + site.prefix)[2]
                return visit.go(back or "/", str(problem))

        return answer
