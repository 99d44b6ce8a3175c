"""What can be seen and acted on: the same pages against this service and against `browsergym-core`.

    python benchmarks/env/fidelity.py [--markdown]

Each page sets its title to "hit" when what it asks for was done. A side passes when its observations showed where to
do that and a tab is called "hit" afterwards. BrowserGym is installed into an environment of its own, see parts.py.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from parts import BrowserGym, serving
from webagent_env.client import EnvClient, Session
from webagent_env.config import SessionsConfig
from webagent_env.task_files import load_own
from webagent_runtime.errors import ServiceError

LIMIT = 120.0
HIT = "top.document.title=&quot;hit&quot;"
BUTTON = f"<button onclick='{HIT}'>target</button>"
TELL = "<button onclick='top.postMessage(1, &quot;*&quot;)'>target</button>"
HEAR = "<script>onmessage = () => { document.title = 'hit' }</script>"
WORDS = "naïve 東京 عربى हिन्दी 😀"
# What this service calls them, and what BrowserGym does.
VERBS = {
    "click": 'do(action="Click", element="{0}")',
    "fill": 'do(action="Type", argument="{1}", element="{0}")',
    "select_option": 'do(action="Select Dropdown Option", argument="{1}", element="{0}")',
}


@dataclass(frozen=True)
class Case:
    """A page, and what is to be done on it: verb, the words at the element, and a text."""

    html: str
    acts: tuple[tuple[str, str, str | None], ...] = (("click", "target", None),)


def shadow(inside: str, around: str = "") -> str:
    """A page with an open shadow root, whose button hits."""
    return (
        f"<x-a>{around}</x-a><script>const root = document.querySelector('x-a').attachShadow({{mode: 'open'}});"
        f"root.innerHTML = '<button>{inside}</button>';"
        "root.querySelector('button').onclick = () => { document.title = 'hit' }</script>"
    )


def editor(attributes: str, tag: str, text: str) -> str:
    """A field that hits when it holds a text."""
    value = "this.value ?? this.textContent"
    return f"<{tag} title='field' {attributes} oninput='if (({value}) === \"{text}\") {HIT}'></{tag}>"


CASES = {
    "a button": Case(BUTTON),
    "a frame of the same site": Case("<iframe src='/inner'></iframe>"),
    "a frame of another site": Case(f"<iframe src='OTHER/tell'></iframe>{HEAR}"),
    "a srcdoc frame": Case(f'<iframe srcdoc="{BUTTON.replace("&", "&amp;")}"></iframe>'),
    "a sandboxed frame": Case(f"<iframe sandbox='allow-scripts' src='/tell'></iframe>{HEAR}"),
    "a frame in a frame of another site": Case(f"<iframe src='OTHER/around'></iframe>{HEAR}"),
    "an open shadow root": Case(shadow("target")),
    "text in a slot": Case(shadow("<slot></slot>", "target")),
    "a listener without a role": Case(
        "<div id=d>target</div><script>d.addEventListener('click', () => { document.title = 'hit' })</script>"
    ),
    "a button whose centre is covered": Case(
        f"<div style='position:relative;width:200px'>{BUTTON.replace('<button', '<button style=width:200px')}"
        "<i style='position:absolute;left:80px;top:0;width:40px;height:30px;background:red'></i></div>"
    ),
    "an alert on the way": Case("<button onclick='alert(1); document.title=&quot;hit&quot;'>target</button>"),
    "a confirm that is to be accepted": Case(
        "<button onclick='if (confirm(1)) document.title=&quot;hit&quot;'>target</button>"
    ),
    "a popup": Case(
        "<button onclick='window.open(&quot;/inner&quot;)'>open</button>",
        (("click", "open", None), ("click", "target", None)),
    ),
    "a select": Case(
        f"<select title='field' onchange='if (this.value === \"2\") {HIT}'><option value=1>one</option>"
        "<option value=2>two</option></select>",
        (("select_option", "field", "two"),),
    ),
    "a text field": Case(editor("", "input", "plain"), (("fill", "field", "plain"),)),
    "an editable region": Case(editor("contenteditable role=textbox", "div", "plain"), (("fill", "field", "plain"),)),
    "scripts of the world": Case(editor("", "textarea", WORDS), (("fill", "field", WORDS),)),
    "suggestions that come late": Case(
        f"<input title='field' oninput='setTimeout(() => {{ document.querySelector(\"p\").innerHTML = this.nextSibling."
        f"innerHTML }}, 600)'><template>{BUTTON}</template><p></p>",
        (("fill", "field", "x"), ("click", "target", None)),
    ),
    "a page that never rests": Case(f"{BUTTON}<p></p><script>setInterval(() => fetch('/inner'), 20)</script>"),
}
FILES = {"inner": BUTTON, "tell": TELL, "around": "<iframe src='/tell'></iframe>"}


async def site() -> tuple[web.AppRunner, str]:
    """Serves the pages."""
    names = {f"page-{number}": case.html for number, case in enumerate(CASES.values())} | FILES
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


async def played(session: Session, case: Case) -> bool:
    """Whether this service got there."""
    for verb, words, text in case.acts:
        shown = re.search(rf'id="(\d+)"(?:[^>]*[^>/]>|[^>]*title="){words}', session.observation.text)
        if shown is None:
            return False
        await session.act(VERBS[verb].format(shown[1], text))
    return any(tab.title == "hit" for tab in session.observation.tabs)


async def ours(address: str, directory: Path) -> dict[str, bool]:
    """What this service can do."""
    host = address.removeprefix("http://").replace("127.0.0.1", "localhost")
    tasks = "\n".join(
        f"  - {{id: page-{n}, instruction: x, start_url: '{address}/page-{n}', allowed_hosts: ['{host}']}}"
        for n in range(len(CASES))
    )
    file = directory / "suite.yaml"
    file.write_text(f"suite: pages\ntasks:\n{tasks}\n", encoding="utf-8")
    found = {}
    async with serving(SessionsConfig(), [load_own(file)]) as service, EnvClient(service.address) as env:
        for number, (name, case) in enumerate(CASES.items()):
            try:
                async with await env.open(f"pages/page-{number}") as session:
                    found[name] = await played(session, case)
            except ServiceError as error:
                sys.stderr.write(f"{name}: {error}\n")
                found[name] = False
    return found


async def theirs(address: str, number: int, case: Case) -> bool:
    """Whether BrowserGym got there; a process a page, since some pages leave it hanging."""
    async with BrowserGym() as gym:
        try:
            options = {"task_kwargs": {"start_url": f"{address}/page-{number}", "goal": "x"}}
            answer = await gym.ask(LIMIT, do="open", env="browsergym/openended", options=options)
            for verb, words, text in case.acts:
                answer = await gym.ask(LIMIT, do="act", verb=verb, what=words, text=text)
        except TimeoutError:
            return False
        if error := answer.get("error"):
            sys.stderr.write(f"BrowserGym, page {number}: {error}\n")
        return "hit" in answer.get("titles", ())


async def main(markdown: bool) -> None:
    """Prints the table."""
    runner, address = await site()
    try:
        with tempfile.TemporaryDirectory() as directory:
            mine = await ours(address, Path(directory))
        other = {name: await theirs(address, number, case) for number, (name, case) in enumerate(CASES.items())}
    finally:
        await runner.cleanup()
    rows = [("page", "webagent-env", "browsergym-core")] + ([("---", "---", "---")] if markdown else [])
    rows += [(name, _said(mine[name]), _said(other[name])) for name in CASES]
    rows += [("in all", f"{sum(mine.values())} of {len(CASES)}", f"{sum(other.values())} of {len(CASES)}")]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, (36, 14, 15), strict=True)]
        sys.stdout.write((f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip()) + "\n")


def _said(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print the table for a README")
    asyncio.run(main(parser.parse_args().markdown))
