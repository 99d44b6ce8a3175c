"""Actions between the contract's messages and the domain's values."""

from __future__ import annotations

import hashlib
from typing import Any

from webagent.env.v1 import env_pb2

from webagent_env import actions, errors
from webagent_env.actions import Action, Failed, Reason, Rejected
from webagent_env.grammar import MAX_TEXT_BYTES, element_number, parse_action, web_address
from webagent_env.keys import canonical_key

_MOST_FILES = 16
_MOST_FILE_BYTES = 16 * 1024 * 1024
_REASONS = {
    Reason.MALFORMED: env_pb2.ACTION_REASON_MALFORMED,
    Reason.UNKNOWN_ACTION: env_pb2.ACTION_REASON_UNKNOWN_ACTION,
    Reason.BAD_ARGUMENT: env_pb2.ACTION_REASON_BAD_ARGUMENT,
    Reason.UNKNOWN_ELEMENT: env_pb2.ACTION_REASON_UNKNOWN_ELEMENT,
    Reason.NOT_INTERACTABLE: env_pb2.ACTION_REASON_NOT_INTERACTABLE,
    Reason.NO_SUCH_OPTION: env_pb2.ACTION_REASON_NO_SUCH_OPTION,
    Reason.NOWHERE_TO_GO: env_pb2.ACTION_REASON_NOWHERE_TO_GO,
    Reason.NOT_ALLOWED: env_pb2.ACTION_REASON_NOT_ALLOWED,
    Reason.ELEMENT_GONE: env_pb2.ACTION_REASON_ELEMENT_GONE,
    Reason.ELEMENT_COVERED: env_pb2.ACTION_REASON_ELEMENT_COVERED,
    Reason.OPTION_DISABLED: env_pb2.ACTION_REASON_OPTION_DISABLED,
    Reason.TOO_LONG: env_pb2.ACTION_REASON_TOO_LONG,
    Reason.NOT_LOADED: env_pb2.ACTION_REASON_NOT_LOADED,
}
# Field of env.v1.Action, the domain's class, and the names of their fields, which agree.
_ACTIONS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "click": (actions.Click, ("element",)),
    "right_click": (actions.RightClick, ("element",)),
    "type": (actions.Type, ("element", "text")),
    "search": (actions.Search, ("element", "text")),
    "hover": (actions.Hover, ("element",)),
    "scroll_up": (actions.ScrollUp, ()),
    "scroll_down": (actions.ScrollDown, ()),
    "press_enter": (actions.PressEnter, ()),
    "switch_tab": (actions.SwitchTab, ("tab",)),
    "select_dropdown_option": (actions.SelectDropdownOption, ("element", "option")),
    "wait": (actions.Wait, ()),
    "exit": (actions.Exit, ("message",)),
    "go_backward": (actions.GoBackward, ()),
    "go_forward": (actions.GoForward, ()),
    "press_key": (actions.PressKey, ("key",)),
    "goto": (actions.Goto, ("url",)),
    "upload": (actions.Upload, ("element",)),
}
_FIELDS = {kind: field for field, (kind, _) in _ACTIONS.items()}


def input_of(request: env_pb2.StepRequest) -> tuple[Action | Rejected, str]:
    """The action of a step, or why there is none, and what identifies it when it is none."""
    match request.WhichOneof("input"):
        case "action_text":
            return parse_action(request.action_text), request.action_text
        case "action":
            written = request.action.SerializeToString(deterministic=True)
            return _action_of(request.action), hashlib.sha256(written).hexdigest()
        case _:
            raise errors.invalid_request("a step needs action or action_text")


def _action_of(message: env_pb2.Action) -> Action | Rejected:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise errors.invalid_request("action needs a kind")
    make, fields = _ACTIONS[kind]
    given = getattr(message, kind)
    if kind == "upload":
        return _upload_of(given)
    values = {field: getattr(given, field) for field in fields}
    if message.ByteSize() > MAX_TEXT_BYTES:
        return Rejected(Reason.TOO_LONG, f"an action has at most {MAX_TEXT_BYTES} bytes")
    if "element" in values:
        number = element_number(values["element"])
        if number is None:
            return Rejected(Reason.BAD_ARGUMENT, f"element must be a decimal number, not {values['element'][:40]!r}")
        values["element"] = number
    if "key" in values:
        key = canonical_key(values["key"])
        if key is None:
            return Rejected(Reason.BAD_ARGUMENT, f"{values['key'][:40]!r} is no key")
        values["key"] = key
    if "url" in values:
        url = web_address(values["url"])
        if isinstance(url, Rejected):
            return url
        values["url"] = url
    action: Action = make(**values)
    return action


def _upload_of(given: env_pb2.Action.Upload) -> Action | Rejected:
    number = element_number(given.element)
    if number is None:
        return Rejected(Reason.BAD_ARGUMENT, f"element must be a decimal number, not {given.element[:40]!r}")
    if not 1 <= len(given.files) <= _MOST_FILES:
        return Rejected(Reason.BAD_ARGUMENT, f"an upload has 1 to {_MOST_FILES} files")
    if sum(len(file.content) for file in given.files) > _MOST_FILE_BYTES:
        return Rejected(Reason.TOO_LONG, f"the files of an upload have at most {_MOST_FILE_BYTES} bytes in all")
    for file in given.files:
        name = file.name
        plain = 0 < len(name.encode()) <= 255 and name not in {".", ".."} and not set(name) & {"/", "\\", "\0"}
        if not plain:
            return Rejected(Reason.BAD_ARGUMENT, f"{name[:40]!r} is no file name")
    return actions.Upload(number, tuple(actions.File(f.name, f.media_type, f.content) for f in given.files))


def action_message(action: Action) -> env_pb2.Action:
    """An action as understood."""
    field = _FIELDS[type(action)]
    _, names = _ACTIONS[field]
    message = env_pb2.Action()
    kind = getattr(message, field)
    kind.SetInParent()
    if isinstance(action, actions.Upload):
        # The answer names the files and does not send them back.
        for file in action.files:
            kind.files.add(name=file.name, media_type=file.media_type)
    for name in names:
        setattr(kind, name, getattr(action, name))
    return message


def result_message(action: Action | None, refusal: Failed | Rejected | None) -> env_pb2.ActionResult:
    """What became of an action."""
    result = env_pb2.ActionResult(status=env_pb2.ACTION_STATUS_OK)
    if action is not None:
        result.action.CopyFrom(action_message(action))
    if refusal is not None:
        rejected = isinstance(refusal, Rejected)
        result.status = env_pb2.ACTION_STATUS_REJECTED if rejected else env_pb2.ACTION_STATUS_FAILED
        result.message = refusal.message
        result.reason = _REASONS[refusal.reason]
    return result
