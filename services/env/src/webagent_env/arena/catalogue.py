"""All sites of the arena, their stores and their templates. A new site is added here."""

from __future__ import annotations

from webagent_env.arena.across import ADMIN_AND_MAP, ADMIN_AND_SHOP, SHOP_AND_MAP
from webagent_env.arena.across_forum import CODE_AND_FORUM, FORUM_AND_CODE, SHOP_AND_FORUM
from webagent_env.arena.admin.people_tasks import PEOPLE
from webagent_env.arena.admin.site import SITE as ADMIN_SITE
from webagent_env.arena.admin.tasks import ADMIN
from webagent_env.arena.code.data import STORE as CODE_STORE
from webagent_env.arena.code.issue_tasks import ISSUES
from webagent_env.arena.code.site import SITE as CODE_SITE
from webagent_env.arena.code.tasks import CODE
from webagent_env.arena.forum.data import STORE as FORUM_STORE
from webagent_env.arena.forum.site import SITE as FORUM_SITE
from webagent_env.arena.forum.tasks import FORUM
from webagent_env.arena.forum.writing_tasks import WRITING
from webagent_env.arena.intents import Chapter, Intent
from webagent_env.arena.map.data import STORE as MAP_STORE
from webagent_env.arena.map.site import SITE as MAP_SITE
from webagent_env.arena.map.tasks import MAP
from webagent_env.arena.shop.account_tasks import ACCOUNT
from webagent_env.arena.shop.data import STORE as SHOP_STORE
from webagent_env.arena.shop.site import SITE as SHOP_SITE
from webagent_env.arena.shop.tasks import SHOP
from webagent_env.arena.site import Site
from webagent_env.arena.suite import Arena
from webagent_env.arena.world import Store

# A site's further pages register with it where its templates import them.
SITES: tuple[Site, ...] = (SHOP_SITE, ADMIN_SITE, FORUM_SITE, CODE_SITE, MAP_SITE)
STORES: tuple[Store, ...] = (SHOP_STORE, FORUM_STORE, CODE_STORE, MAP_STORE)
CHAPTERS: tuple[Chapter, ...] = (
    SHOP,
    ACCOUNT,
    ADMIN,
    PEOPLE,
    FORUM,
    WRITING,
    CODE,
    ISSUES,
    MAP,
    SHOP_AND_MAP,
    ADMIN_AND_MAP,
    ADMIN_AND_SHOP,
    SHOP_AND_FORUM,
    CODE_AND_FORUM,
    FORUM_AND_CODE,
)


def intents() -> list[Intent]:
    """All intent templates."""
    return [intent for chapter in CHAPTERS for intent in chapter.intents]


def make_arena() -> Arena:
    """The suite with everything in it."""
    return Arena(list(SITES), list(STORES), intents())
