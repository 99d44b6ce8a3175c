"""What can be seen and acted on: the same pages against this service and, where it is installed, `browsergym-core`.

    python benchmarks/env_fidelity.py [--markdown]

Each page has something called "target". A side passes when its observation shows the target and clicking what it showed
sets the page's title to "hit". BrowserGym is `pip install browsergym-core` in an environment of its own; without it its
column is empty.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

from aiohttp import web
from playwright.async_api import Error
from webagent_env.__main__ import serve
from webagent_env.client import EnvClient
from webagent_env.config import EnvConfig, SuitesConfig
from webagent_runtime.config import ServerConfig
from webagent_runtime.errors import ServiceError

HIT = "top.document.title=&quot;hit&quot;"
BUTTON = f"<button onclick='{HIT}'>target</button>"
TELL = "<button onclick='top.postMessage(1, &quot;*&quot;)'>target</button>"
HEAR = "<script>onmessage = () => { document.title = 'hit' }</script>"
PAGES = {
    "a button": BUTTON,
    "a frame of the same site": "<iframe src='/inner'></iframe>",
    "a frame of another site": f"<iframe src='OTHER/tell'></iframe>{HEAR}",
    "a srcdoc frame": f'<iframe srcdoc="{BUTTON.replace("&quot;", "&#39;")}"></iframe>',
    "a sandboxed frame": f"<iframe sandbox='allow-scripts' src='/tell'></iframe>{HEAR}",
    "a frame in a frame of another site": f"<iframe src='OTHER/around'></iframe>{HEAR}",
    "an open shadow root": (
        "<x-a></x-a><script>const root = document.querySelector('x-a').attachShadow({mode: 'open'});"
        "root.innerHTML = '<button>target</button>';"
        "root.querySelector('button').onclick = () => { document.title = 'hit' }</script>"
    ),
    "text in a slot": (
        "<x-a>target</x-a><script>const root = document.querySelector('x-a').attachShadow({mode: 'open'});"
        "root.innerHTML = '<button><slot></slot></button>';"
        "root.querySelector('button').onclick = () => { document.title = 'hit' }</script>"
    ),
    "a listener without a role": (
        "<div id=d>target</div><script>d.addEventListener('click', () => { document.title = 'hit' })</script>"
    ),
    "a button whose centre is covered": (
        f"<div style='position:relative;width:200px'>{BUTTON.replace('<button', '<button style=width:200px')}"
        "<i style='position:absolute;left:80px;top:0;width:40px;height:30px;background:red'></i></div>"
    ),
    "a dialog on the way": "<button onclick='alert(1); document.title=&quot;hit&quot;'>target</button>",
    "a page that never rests": f"{BUTTON}<p></p><script>setInterval(() => fetch('/inner'), 20)</script>",
}
FILES = {
    "inner": BUTTON,
    "tell": TELL,
    "around": "<iframe src='/tell'></iframe>",
}


async def site() -> tuple[web.AppRunner, str]:
    """Serves the pages."""
    names = {f"page-{number}": html for number, html in enumerate(PAGES.values())} | FILES
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    addresses: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        html = names[request.match_info["name"]].replace("OTHER", addresses[0].replace("127.0.0.1", "localhost"))
        return web.Response(text=f"<!DOCTYPE html><body>{html}</body>", content_type="text/html")

    runner.app.router.add_get("/{name}", answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
    return runner, addresses[0]


async def ours(address: str, directory: Path) -> dict[str, bool]:
    """What this service can do."""
    host = address.removeprefix("http://").replace("127.0.0.1", "localhost")
    tasks = "\n".join(
        f"  - {{id: page-{n}, instruction: x, start_url: '{address}/page-{n}', allowed_hosts: ['{host}']}}"
        for n in range(len(PAGES))
    )
    (directory / "suite.yaml").write_text(f"suite: pages\ntasks:\n{tasks}\n")
    suites = SuitesConfig(miniwob=False, files=(directory / "suite.yaml",))
    config = EnvConfig(server=ServerConfig(port=50951), suites=suites, state_directory=directory / "state")
    service = asyncio.create_task(serve(config))
    found = {}
    try:
        async with EnvClient("127.0.0.1:50951") as env:
            for number, name in enumerate(PAGES):
                try:
                    async with await env.open(f"pages/page-{number}") as session:
                        shown = re.search(r'id="(\d+)"[^>]*>target', session.observation.text)
                        action = f'do(action="Click", element="{shown[1]}")' if shown else ""
                        found[name] = bool(shown) and (await session.act(action)).observation.title == "hit"
                except ServiceError as error:
                    sys.stderr.write(f"{name}: {error}\n")
                    found[name] = False
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
    return found


def browsergym(address: str) -> dict[str, bool]:
    """What BrowserGym can do; empty where it is not installed."""
    if importlib.util.find_spec("browsergym") is None:
        return {}
    import browsergym.core  # noqa: F401, PLC0415  registers its environments
    import gymnasium  # noqa: PLC0415
    from browsergym.utils.obs import flatten_axtree_to_str  # noqa: PLC0415

    found = {}
    for number, name in enumerate(PAGES):
        options = {"task_kwargs": {"start_url": f"{address}/page-{number}", "goal": "x"}, "headless": True}
        env = gymnasium.make("browsergym/openended", **options)
        try:
            seen, _ = env.reset()
            tree = flatten_axtree_to_str(seen["axtree_object"])
            shown = re.search(r"\[(\w+)\][^\n]*target", tree)
            seen = env.step(f"click('{shown[1]}')")[0] if shown else seen
            found[name] = bool(shown) and "hit" in seen["open_pages_titles"]
        except (Error, ValueError, KeyError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            found[name] = False
        finally:
            env.close()
    return found


async def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print the table for a README")
    markdown = parser.parse_args().markdown
    runner, address = await site()
    try:
        with tempfile.TemporaryDirectory() as directory:
            mine = await ours(address, Path(directory))
        theirs = await asyncio.to_thread(browsergym, address)
    finally:
        await runner.cleanup()
    bar = " | " if markdown else "  "
    rows = [("page", "webagent-env", "browsergym-core")] + ([("---", "---", "---")] if markdown else [])
    rows += [(name, _said(mine.get(name)), _said(theirs.get(name))) for name in PAGES]
    for row in rows:
        line = bar.join(cell.ljust(width) for cell, width in zip(row, (36, 14, 15), strict=True))
        sys.stdout.write((f"| {line} |" if markdown else line.rstrip()) + "\n")


def _said(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


if __name__ == "__main__":
    asyncio.run(main())
