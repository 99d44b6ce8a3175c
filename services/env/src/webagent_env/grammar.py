"""The text form of actions: the only place where it is parsed or written.

The form is one Python call with literal keyword arguments, after any number of comment lines:

    # Element: the save button
    do(action="Click", element="7")

`parse_action` is total: whatever the text, it returns an action or says why there is none. It reads the text with
`ast` and never evaluates anything. `format_action` is its inverse.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from webagent_env.actions import (
    Action,
    Click,
    Exit,
    GoBackward,
    GoForward,
    Goto,
    Hover,
    PressEnter,
    PressKey,
    Reason,
    Rejected,
    RightClick,
    ScrollDown,
    ScrollUp,
    Search,
    SelectDropdownOption,
    SwitchTab,
    Type,
    Upload,
    Wait,
)
from webagent_env.keys import canonical_key

MAX_TEXT_BYTES = 65_536
_CALL = re.compile(r"[ \t\r\n]*(do|exit|go_backward|go_forward)[ \t\r\n]*\(")
_NUMBER = re.compile(r"[0-9]{1,9}")
_FORMS = 'do(action="...", ...), exit(message="..."), go_backward() or go_forward()'
_Literal = str | int


class _RejectedError(Exception):
    """Carries a rejection out of the parser; never leaves this module."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.rejected = Rejected(reason, message)


@dataclass(frozen=True)
class _Form:
    """One value of `action=`: what it takes besides, and how it is made."""

    name: str
    arguments: tuple[str, ...]
    make: Callable[[Mapping[str, _Literal]], Action]


def element_number(value: object) -> str | None:
    """The canonical form of an element's number, or None if it is not one."""
    if isinstance(value, bool):
        return None
    text = str(value) if isinstance(value, int) else value
    if not isinstance(text, str) or _NUMBER.fullmatch(text.strip()) is None:
        return None
    return str(int(text))


def web_address(text: str) -> str | Rejected:
    """The address, if it is one that an agent may open: files, scripts and data are no pages."""
    url = text.strip()
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if whole and not any(character.isspace() or character < " " for character in url):
        return url
    return Rejected(Reason.BAD_ARGUMENT, f"only whole http:// and https:// addresses can be opened, not {_shown(text)}")


def parse_action(text: str) -> Action | Rejected:
    """Reads one action; never raises for any text."""
    try:
        return _parse(text)
    except _RejectedError as error:
        return error.rejected


def format_action(action: Action) -> str:
    """Writes an action in the form that `parse_action` reads. An upload, which has none, is a ValueError."""
    match action:
        case Exit(message):
            return f"exit(message={_quote(message)})"
        case GoBackward():
            return "go_backward()"
        case GoForward():
            return "go_forward()"
        case Type(element, text) | Search(element, text) | SelectDropdownOption(element, text):
            arguments = {"argument": text, "element": element}
        case Click(element) | RightClick(element) | Hover(element):
            arguments = {"element": element}
        case SwitchTab(tab):
            arguments = {"argument": str(tab)}
        case PressKey(argument) | Goto(argument):
            arguments = {"argument": argument}
        case Upload():
            raise ValueError("an upload has no text form")
        case _:
            arguments = {}
    written = "".join(f", {name}={_quote(value)}" for name, value in arguments.items())
    return f"do(action={_quote(_NAMES[type(action)])}{written})"


def _quote(text: str) -> str:
    # JSON strings are Python string literals, too.
    return json.dumps(text, ensure_ascii=False)


def _parse(text: str) -> Action:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise _RejectedError(Reason.TOO_LONG, f"an action has at most {MAX_TEXT_BYTES} bytes")
    call = _read_call(_without_comments(text))
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    arguments = _read_arguments(name, call)
    match name:
        case "do":
            return _parse_do(arguments)
        case "exit":
            _expect("exit", arguments, required=(), optional=("message",))
            return Exit(str(arguments.get("message", "")))
        case "go_backward":
            _expect(name, arguments, required=())
            return GoBackward()
        case "go_forward":
            _expect(name, arguments, required=())
            return GoForward()
        case _:
            raise _RejectedError(Reason.MALFORMED, f"not an action; write {_FORMS}")


def _without_comments(text: str) -> str:
    lines = text.strip().split("\n")
    for number, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return "\n".join(lines[number:])
    return ""


def _read_call(text: str) -> ast.Call:
    if _CALL.match(text) is None:
        raise _RejectedError(Reason.MALFORMED, f"not an action; write {_FORMS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _RejectedError(Reason.MALFORMED, "not one complete call; check quotes and brackets") from None
    if not isinstance(tree.body, ast.Call):
        raise _RejectedError(Reason.MALFORMED, f"not one single call; write {_FORMS}")
    return tree.body


def _read_arguments(name: str, call: ast.Call) -> dict[str, _Literal]:
    if call.args:
        raise _RejectedError(
            Reason.BAD_ARGUMENT, f'{name or "a call"} takes no positional arguments; name each one, as in element="7"'
        )
    arguments: dict[str, _Literal] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _RejectedError(Reason.BAD_ARGUMENT, "** is not allowed")
        if keyword.arg in arguments:
            raise _RejectedError(Reason.BAD_ARGUMENT, f"{_shown(keyword.arg)} is given twice")
        arguments[keyword.arg] = _literal(keyword.arg, keyword.value)
    return arguments


def _literal(name: str, node: ast.expr) -> _Literal:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _RejectedError(Reason.BAD_ARGUMENT, f"{_shown(name)} must be a text in quotes")
    if isinstance(value, int):
        if value >= 10**18:
            raise _RejectedError(Reason.BAD_ARGUMENT, f"{_shown(name)} is too large a number")
        return value
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _RejectedError(Reason.BAD_ARGUMENT, f"{_shown(name)} is not valid Unicode")
    return value


def _parse_do(arguments: dict[str, _Literal]) -> Action:
    action = arguments.pop("action", None)
    if action is None:
        raise _RejectedError(Reason.BAD_ARGUMENT, 'do needs action="..."')
    form = _FORMS_BY_NAME.get(str(action).strip().lower())
    if form is None:
        names = ", ".join(form.name for form in _DO)
        raise _RejectedError(Reason.UNKNOWN_ACTION, f"there is no action {_shown(str(action))}; there are {names}")
    _expect(form.name, arguments, required=form.arguments)
    return form.make(arguments)


def _expect(
    name: str, given: Mapping[str, _Literal], *, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    for argument in required:
        if argument not in given:
            raise _RejectedError(Reason.BAD_ARGUMENT, f'{name} needs {argument}="..."')
    for argument in given:
        if argument not in required and argument not in optional:
            raise _RejectedError(Reason.BAD_ARGUMENT, f"{name} takes no {_shown(argument)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _element(arguments: Mapping[str, _Literal]) -> str:
    number = element_number(arguments["element"])
    if number is None:
        raise _RejectedError(
            Reason.BAD_ARGUMENT, f"element must be a number of the page, not {_shown(str(arguments['element']))}"
        )
    return number


def _tab(arguments: Mapping[str, _Literal]) -> int:
    number = element_number(arguments["argument"])
    if number is None:
        raise _RejectedError(Reason.BAD_ARGUMENT, f"a tab is a number from 0, not {_shown(str(arguments['argument']))}")
    return int(number)


def _key(arguments: Mapping[str, _Literal]) -> str:
    key = canonical_key(str(arguments["argument"]))
    if key is None:
        raise _RejectedError(Reason.BAD_ARGUMENT, f"{_shown(str(arguments['argument']))} is no key")
    return key


def _url(arguments: Mapping[str, _Literal]) -> str:
    url = web_address(str(arguments["argument"]))
    if isinstance(url, Rejected):
        raise _RejectedError(url.reason, url.message)
    return url


def _text(arguments: Mapping[str, _Literal]) -> str:
    return str(arguments["argument"])


_DO = (
    _Form("Click", ("element",), lambda given: Click(_element(given))),
    _Form("Right Click", ("element",), lambda given: RightClick(_element(given))),
    _Form("Type", ("argument", "element"), lambda given: Type(_element(given), _text(given))),
    _Form("Search", ("argument", "element"), lambda given: Search(_element(given), _text(given))),
    _Form("Hover", ("element",), lambda given: Hover(_element(given))),
    _Form("Scroll Up", (), lambda _: ScrollUp()),
    _Form("Scroll Down", (), lambda _: ScrollDown()),
    _Form("Press Enter", (), lambda _: PressEnter()),
    _Form("Switch Tab", ("argument",), lambda given: SwitchTab(_tab(given))),
    _Form(
        "Select Dropdown Option",
        ("argument", "element"),
        lambda given: SelectDropdownOption(_element(given), _text(given)),
    ),
    _Form("Wait", (), lambda _: Wait()),
    _Form("Press Key", ("argument",), lambda given: PressKey(_key(given))),
    _Form("Goto", ("argument",), lambda given: Goto(_url(given))),
)
# The declared grammar has calls of their own for history, but policies trained on the published data also write these.
_ALSO = (
    _Form("Go Backward", (), lambda _: GoBackward()),
    _Form("Go Forward", (), lambda _: GoForward()),
    _Form("Switch Page", ("argument",), lambda given: SwitchTab(_tab(given))),
)
_FORMS_BY_NAME = {form.name.lower(): form for form in _DO + _ALSO}
_NAMES: dict[type[Action], str] = {
    Click: "Click",
    RightClick: "Right Click",
    Type: "Type",
    Search: "Search",
    Hover: "Hover",
    ScrollUp: "Scroll Up",
    ScrollDown: "Scroll Down",
    PressEnter: "Press Enter",
    SwitchTab: "Switch Tab",
    SelectDropdownOption: "Select Dropdown Option",
    Wait: "Wait",
    PressKey: "Press Key",
    Goto: "Goto",
}
