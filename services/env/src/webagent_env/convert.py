"""Between the contract's messages and the domain's values; nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from webagent.env.v1 import env_pb2, probe_pb2

from webagent_env import actions, errors
from webagent_env.actions import Action, Failed, Reason, Rejected
from webagent_env.config import SessionsConfig
from webagent_env.grammar import element_number, parse_action
from webagent_env.observation import Kind, Observation, View
from webagent_env.session import Session, SessionSpec, StepOutcome
from webagent_env.tasks import NativeRule, Suite, Task

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LEAST_BYTES, _MOST_BYTES = 1024, 4_194_304
_LARGEST_VIEWPORT = 8192
_KINDS = {
    env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML: Kind.SIMPLIFIED_HTML,
    env_pb2.OBSERVATION_KIND_SCREENSHOT: Kind.SCREENSHOT,
}
_REASONS = {
    Reason.MALFORMED: env_pb2.ACTION_REASON_MALFORMED,
    Reason.UNKNOWN_ACTION: env_pb2.ACTION_REASON_UNKNOWN_ACTION,
    Reason.BAD_ARGUMENT: env_pb2.ACTION_REASON_BAD_ARGUMENT,
    Reason.UNKNOWN_ELEMENT: env_pb2.ACTION_REASON_UNKNOWN_ELEMENT,
    Reason.NOT_INTERACTABLE: env_pb2.ACTION_REASON_NOT_INTERACTABLE,
    Reason.NO_SUCH_OPTION: env_pb2.ACTION_REASON_NO_SUCH_OPTION,
    Reason.NOWHERE_TO_GO: env_pb2.ACTION_REASON_NOWHERE_TO_GO,
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
}
_FIELDS = {kind: field for field, (kind, _) in _ACTIONS.items()}


# ---- requests --------------------------------------------------------------------------------------------------------
def session_id_of(session_id: str) -> str:
    """Checks a session id."""
    if _SESSION_ID.fullmatch(session_id) is None:
        raise errors.invalid_request("session_id must be 1 to 128 characters of [A-Za-z0-9._-]")
    return session_id


def spec_of(request: env_pb2.CreateSessionRequest, task: Task, suite: Suite, limits: SessionsConfig) -> SessionSpec:
    """Checks a session's options and fills the defaults in."""
    options = request.options
    max_bytes = options.max_observation_bytes or limits.max_observation_bytes
    if not _LEAST_BYTES <= max_bytes <= _MOST_BYTES:
        raise errors.invalid_request(f"options.max_observation_bytes must be {_LEAST_BYTES} to {_MOST_BYTES}")
    for name in ("viewport_width", "viewport_height"):
        if getattr(options, name) > _LARGEST_VIEWPORT:
            raise errors.invalid_request(f"options.{name} must not exceed {_LARGEST_VIEWPORT}")
    seconds = _Seconds(options, limits.max_lifetime_seconds)
    width, height = suite.viewport
    return SessionSpec(
        session_id=session_id_of(request.session_id),
        task=task,
        seed=request.seed,
        view=View(
            kinds=kinds_of(options.observations) or frozenset({Kind.SIMPLIFIED_HTML}),
            max_bytes=max_bytes,
            omit_attributes=tuple(sorted(set(options.omit_attributes))),
            hidden=suite.hidden,
        ),
        viewport=(options.viewport_width or width, options.viewport_height or height),
        lease=seconds("lease", limits.lease_seconds),
        lifetime=seconds("lifetime", limits.lifetime_seconds),
        step_timeout=seconds("step_timeout", limits.step_timeout_seconds),
    )


class _Seconds:
    def __init__(self, options: env_pb2.SessionOptions, most: float) -> None:
        self._options = options
        self._most = most

    def __call__(self, name: Any, default: float) -> float:
        if not self._options.HasField(name):
            return default
        duration: timedelta = getattr(self._options, name).ToTimedelta()
        if not 0 < duration.total_seconds() <= self._most:
            raise errors.invalid_request(f"options.{name} must be above 0 and at most {self._most:g} s")
        return duration.total_seconds()


def kinds_of(kinds: Iterable[env_pb2.ObservationKind.ValueType]) -> frozenset[Kind]:
    """The kinds asked for; empty if none was named."""
    try:
        return frozenset(_KINDS[kind] for kind in kinds)
    except KeyError as error:
        raise errors.invalid_request(f"observations: {error.args[0]} is no kind of observation") from None


def input_of(request: env_pb2.StepRequest) -> tuple[Action | Rejected, str]:
    """The action of a step, or why there is none, and what identifies it when it is none."""
    match request.WhichOneof("input"):
        case "action_text":
            return parse_action(request.action_text), request.action_text
        case "action":
            return _action_of(request.action), request.action.SerializeToString(deterministic=True).hex()
        case _:
            raise errors.invalid_request("a step needs action or action_text")


def _action_of(message: env_pb2.Action) -> Action | Rejected:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise errors.invalid_request("action needs a kind")
    make, fields = _ACTIONS[kind]
    given = getattr(message, kind)
    values = {field: getattr(given, field) for field in fields}
    if "element" in values:
        number = element_number(values["element"])
        if number is None:
            return Rejected(Reason.BAD_ARGUMENT, f"element must be a decimal number, not {values['element'][:40]!r}")
        values["element"] = number
    action: Action = make(**values)
    return action


# ---- responses -------------------------------------------------------------------------------------------------------
def task_ref(task: Task) -> env_pb2.TaskRef:
    """A task's name."""
    return env_pb2.TaskRef(suite=task.suite, task_id=task.task_id)


def task_info(task: Task) -> env_pb2.TaskInfo:
    """A task as it is listed: without its rule."""
    return env_pb2.TaskInfo(task=task_ref(task), site=task.site)


def session_info(session: Session, address: str) -> env_pb2.SessionInfo:
    """A session as it stands now."""
    info = env_pb2.SessionInfo(
        session_id=session.spec.session_id,
        task=task_ref(session.spec.task),
        seed=session.spec.seed,
        address=address,
        state=env_pb2.SESSION_STATE_OVER if session.over else env_pb2.SESSION_STATE_ACTIVE,
        next_step_index=session.next_step_index,
    )
    info.created_at.FromDatetime(session.created_at)
    info.lease_expires_at.FromDatetime(session.lease_expires_at)
    info.expires_at.FromDatetime(session.expires_at)
    return info


def observation_message(observation: Observation) -> env_pb2.Observation:
    """What a page shows."""
    return env_pb2.Observation(
        text=observation.text,
        text_truncated=observation.truncated,
        screenshot=observation.screenshot,
        url=observation.url,
        title=observation.title,
        tabs=[env_pb2.Tab(url=tab.url, title=tab.title, active=tab.active) for tab in observation.tabs],
    )


def action_message(action: Action) -> env_pb2.Action:
    """An action as understood."""
    field = _FIELDS[type(action)]
    _, names = _ACTIONS[field]
    message = env_pb2.Action()
    kind = getattr(message, field)
    kind.SetInParent()
    for name in names:
        setattr(kind, name, getattr(action, name))
    return message


def step_response(outcome: StepOutcome) -> env_pb2.StepResponse:
    """What a step led to."""
    response = env_pb2.StepResponse(
        step_index=outcome.step_index,
        result=_result(outcome.action, outcome.refusal),
        observation=observation_message(outcome.observation),
        terminated=outcome.terminated,
        truncated=outcome.truncated,
    )
    timings = outcome.timings
    response.timings.act.CopyFrom(_duration(timings.act))
    response.timings.settle.CopyFrom(_duration(timings.settle))
    response.timings.observe.CopyFrom(_duration(timings.observe))
    response.timings.quiet = timings.quiet
    return response


def rule_message(task: Task, seed: int, rule: NativeRule) -> probe_pb2.TaskRule:
    """How a task is judged."""
    native = probe_pb2.NativeRule(reward_javascript=rule.reward_javascript, success_threshold=rule.success_threshold)
    return probe_pb2.TaskRule(task=task_ref(task), site=task.site, seed=seed, native=native)


def all_kinds() -> list[env_pb2.ObservationKind.ValueType]:
    """Every kind of observation that the service gives."""
    return list(_KINDS)


def _result(action: Action | None, refusal: Failed | Rejected | None) -> env_pb2.ActionResult:
    result = env_pb2.ActionResult(status=env_pb2.ACTION_STATUS_OK)
    if action is not None:
        result.action.CopyFrom(action_message(action))
    if refusal is not None:
        rejected = isinstance(refusal, Rejected)
        result.status = env_pb2.ACTION_STATUS_REJECTED if rejected else env_pb2.ACTION_STATUS_FAILED
        result.message = refusal.message
        result.reason = _REASONS[refusal.reason]
    return result


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
