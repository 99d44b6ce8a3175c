"""BrowserGym's side of the benchmarks; run by parts.py with the Python of an environment that has it installed.

Reads a JSON message a line and answers each with one: {"do": "open", "env": id, "seed": 1, "options": {}},
{"do": "act", "verb": "click", "what": regular expression of a line of its accessibility tree, "text": for the verbs
"fill" and "select_option"}, {"do": "close"}. Every answer says how many seconds it took.
"""

import json
import re
import sys
import time

import browsergym.core  # registers its environments
import browsergym.miniwob  # noqa: F401  registers more
import gymnasium
from browsergym.utils.obs import flatten_axtree_to_str
from playwright.sync_api import BrowserType

_launch = BrowserType.launch


def _launch_ours(self: BrowserType, **options: object) -> object:
    options["executable_path"] = sys.argv[1]
    options["args"] = [*(options.get("args") or []), "--no-sandbox"]
    return _launch(self, **options)


class Side:
    """One environment at a time."""

    def __init__(self) -> None:
        self.env = None
        self.seen = None

    def answer(self, message: dict) -> dict:
        """Does what a message asks for."""
        begun = time.perf_counter()
        try:
            found = getattr(self, message.pop("do"))(**message)
        except Exception as error:  # noqa: BLE001  the other side is told
            return {"seconds": time.perf_counter() - begun, "error": f"{type(error).__name__}: {error}"[:500]}
        return {"seconds": time.perf_counter() - begun, **found}

    def open(self, env: str, seed: int = 0, options: dict | None = None) -> dict:
        """Makes an environment and resets it."""
        self.close()
        self.env = gymnasium.make(env, disable_env_checker=True, headless=True, **(options or {}))
        self.seen, _ = self.env.reset(seed=seed)
        return {"titles": list(self.seen["open_pages_titles"])}

    def act(self, verb: str, what: str, text: str | None = None) -> dict:
        """Takes a step on the first element whose line in the tree matches."""
        found = re.search(rf"\[(\w+)\][^\n]*(?:{what})", flatten_axtree_to_str(self.seen["axtree_object"]))
        if found is None:
            return {"found": False}
        begun = time.perf_counter()
        arguments = [found[1]] if text is None else [found[1], text]
        self.seen, *_ = self.env.step(f"{verb}({', '.join(map(repr, arguments))})")
        seconds = time.perf_counter() - begun
        error = self.seen["last_action_error"]
        return {"found": True, "step": seconds, "error": error, "titles": list(self.seen["open_pages_titles"])}

    def close(self) -> dict:
        """Closes the environment."""
        if self.env is not None:
            env, self.env = self.env, None
            env.close()
        return {}


if __name__ == "__main__":
    BrowserType.launch = _launch_ours
    side = Side()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(side.answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    side.close()
