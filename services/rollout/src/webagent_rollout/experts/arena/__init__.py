"""Experts for the suite "arena", one for each intent template, site by site."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena import (
    across,
    across_forum,
    admin,
    code,
    code_issues,
    forum,
    maps,
    shop,
    shop_account,
)
from webagent_rollout.experts.script import Script

SCRIPTS: Mapping[str, Script] = {
    **shop.SCRIPTS,
    **shop_account.SCRIPTS,
    **admin.SCRIPTS,
    **forum.SCRIPTS,
    **code.SCRIPTS,
    **code_issues.SCRIPTS,
    **maps.SCRIPTS,
    **across.SCRIPTS,
    **across_forum.SCRIPTS,
}
