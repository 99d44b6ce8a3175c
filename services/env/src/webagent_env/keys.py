"""The names of keys, and combinations such as "Control+Shift+a"."""

from __future__ import annotations

_MODIFIERS = {
    "control": "Control",
    "ctrl": "Control",
    "shift": "Shift",
    "alt": "Alt",
    "meta": "Meta",
    "command": "Meta",
    "cmd": "Meta",
}
_NAMED = (
    *("ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Backspace", "Delete", "End", "Enter", "Escape", "Home"),
    *("Insert", "PageDown", "PageUp", "Space", "Tab"),
    *(f"F{number}" for number in range(1, 13)),
)
_KEYS = {name.lower(): name for name in _NAMED}
_KEYS |= {" ": "Space", "esc": "Escape", "return": "Enter", "del": "Delete", "up": "ArrowUp", "down": "ArrowDown"}
_KEYS |= {"left": "ArrowLeft", "right": "ArrowRight", "page down": "PageDown", "page up": "PageUp"}


def canonical_key(text: str) -> str | None:
    """The one way of writing a key with its modifiers, or None if it is no key."""
    text = text.strip(" ") or text
    if text == "+" or text.endswith("++"):
        names, key = text[:-2], "+"
    else:
        names, _, key = text.rpartition("+")
    modifiers = [_MODIFIERS.get(name.strip().lower(), "") for name in names.split("+")] if names else []
    if "" in modifiers or len(set(modifiers)) != len(modifiers):
        return None
    named = key if len(key) == 1 and "!" <= key <= "~" else _KEYS.get(key.strip().lower() or key)
    return None if named is None else "+".join([*modifiers, named])
