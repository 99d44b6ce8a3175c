"""Between the contract's messages and the domain's values; nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from webagent.env.v1 import env_pb2, probe_pb2

from webagent_env import errors
from webagent_env.action_messages import result_message
from webagent_env.config import SessionsConfig
from webagent_env.observation import Download, DownloadState, Kind, Observation, View
from webagent_env.session import Session, SessionSpec, StepOutcome
from webagent_env.session_options import context_options
from webagent_env.tasks import NativeRule, Rule, Suite, Task, WebArenaRule

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LEAST_BYTES, _MOST_BYTES = 1024, 4_194_304
_LARGEST_VIEWPORT = 8192
# 3840 x 2160: both pictures, however little they can be compressed, and both texts fit one message of 64 MiB.
_MOST_PIXELS = 8_294_400
_KINDS = {
    env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML: Kind.SIMPLIFIED_HTML,
    env_pb2.OBSERVATION_KIND_SCREENSHOT: Kind.SCREENSHOT,
    env_pb2.OBSERVATION_KIND_AXTREE: Kind.AXTREE,
    env_pb2.OBSERVATION_KIND_MARKED_SCREENSHOT: Kind.MARKED_SCREENSHOT,
}
_DOWNLOADS = {
    DownloadState.RUNNING: env_pb2.DOWNLOAD_STATE_RUNNING,
    DownloadState.COMPLETED: env_pb2.DOWNLOAD_STATE_COMPLETED,
    DownloadState.FAILED: env_pb2.DOWNLOAD_STATE_FAILED,
    DownloadState.REFUSED: env_pb2.DOWNLOAD_STATE_REFUSED,
}
_DIALECTS = {
    "webarena": probe_pb2.WEB_ARENA_DIALECT_UPSTREAM,
    "vab_lite": probe_pb2.WEB_ARENA_DIALECT_VAB_LITE,
    "verified": probe_pb2.WEB_ARENA_DIALECT_VERIFIED,
}


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
    width, height = options.viewport_width or suite.viewport[0], options.viewport_height or suite.viewport[1]
    if width * height > _MOST_PIXELS:
        asked = f"options.viewport_width and viewport_height ({width} x {height})"
        raise errors.invalid_request(f"{asked} must not exceed {_MOST_PIXELS} pixels, which bounds screenshots")
    seconds = _Seconds(options, limits.max_lifetime_seconds)
    step = seconds("step_timeout", limits.step_timeout_seconds)
    settle = seconds("settle_timeout", limits.settle_timeout_seconds)
    if settle >= step:
        raise errors.invalid_request(f"options.settle_timeout ({settle:g} s) must be below step_timeout ({step:g} s)")
    return SessionSpec(
        session_id=session_id_of(request.session_id),
        task=task,
        seed=request.seed,
        view=View(
            kinds=kinds_of(options.observations) or frozenset({Kind.SIMPLIFIED_HTML}),
            max_bytes=max_bytes,
            omit_attributes=tuple(sorted(set(options.omit_attributes))),
            hidden=suite.hidden,
            max_tokens=options.max_observation_tokens,
            centres_only=suite.centres_only,
        ),
        options=context_options(options, (width, height), limits),
        lease=seconds("lease", limits.lease_seconds),
        lifetime=seconds("lifetime", limits.lifetime_seconds),
        reset_timeout=seconds("reset_timeout", limits.reset_timeout_seconds),
        step_timeout=step,
        settle_timeout=settle,
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
        state=_state(session),
        next_step_index=session.next_step_index,
        fault_reason=session.fault.reason if session.fault is not None else "",
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
        axtree=observation.axtree,
        axtree_truncated=observation.axtree_truncated,
        marked_screenshot=observation.marked_screenshot,
        dialogs=[
            env_pb2.Dialog(type=each.kind, message=each.message, accepted=each.answer == "accepted")
            for each in observation.dialogs
        ],
        downloads=[_download(each) for each in observation.downloads],
        url=observation.url,
        title=observation.title,
        tabs=[env_pb2.Tab(url=tab.url, title=tab.title, active=tab.active) for tab in observation.tabs],
    )


def _download(one: Download) -> env_pb2.Download:
    return env_pb2.Download(name=one.name, url=one.url, size=one.size, state=_DOWNLOADS[one.state], message=one.why)


def step_response(outcome: StepOutcome) -> env_pb2.StepResponse:
    """What a step led to."""
    response = env_pb2.StepResponse(
        step_index=outcome.step_index,
        result=result_message(outcome.action, outcome.refusal),
        observation=observation_message(outcome.observation),
        terminated=outcome.terminated,
        truncated=outcome.truncated,
    )
    timings = outcome.timings
    response.timings.act.CopyFrom(_duration(timings.act))
    response.timings.settle.CopyFrom(_duration(timings.settle))
    response.timings.observe.CopyFrom(_duration(timings.observe))
    response.timings.quiet = timings.quiet
    response.timings.waited_for = timings.waited_for
    if (effect := outcome.effect) is not None:
        response.effect.CopyFrom(
            env_pb2.ActionEffect(
                url_changed=effect.url_changed,
                tabs_changed=effect.tabs_changed,
                text_changed=effect.text_changed,
                dialog_opened=effect.dialog_opened,
                downloaded=effect.downloaded,
            )
        )
    return response


def rule_message(task: Task, seed: int, rule: Rule | None) -> probe_pb2.TaskRule:
    """How a task is judged."""
    message = probe_pb2.TaskRule(task=task_ref(task), site=task.site, seed=seed)
    match rule:
        case NativeRule():
            message.native.reward_javascript = rule.reward_javascript
            message.native.success_threshold = rule.success_threshold
        case WebArenaRule():
            message.webarena.eval_json = rule.eval_json
            message.webarena.intent = rule.intent
            message.webarena.dialect = _DIALECTS[rule.dialect]
            message.webarena.site_urls.update(rule.site_urls)
    return message


def all_kinds() -> list[env_pb2.ObservationKind.ValueType]:
    """Every kind of observation that the service gives."""
    return list(_KINDS)


def _state(session: Session) -> env_pb2.SessionState.ValueType:
    if session.fault is not None:
        return env_pb2.SESSION_STATE_FAULTED
    return env_pb2.SESSION_STATE_OVER if session.over else env_pb2.SESSION_STATE_ACTIVE


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
