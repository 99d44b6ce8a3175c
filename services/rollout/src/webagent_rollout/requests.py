"""Checks an episode before anything is opened for it."""

import re

from grpc import StatusCode
from webagent.trajectory.v1.trajectory_pb2 import EpisodeSpec
from webagent_runtime.errors import ServiceError

from webagent_rollout.experts import EXPERTS
from webagent_rollout.prompt import LAYOUTS, has_form

# A session id is an episode id with a suffix, and has at most 128 characters.
EPISODE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
MAX_TURNS = 100


def check(spec: EpisodeSpec) -> None:
    """Raises INVALID_ARGUMENT with the reason that the contract names if the episode cannot be played as asked."""
    task = f"{spec.task.suite}/{spec.task.task_id}"
    policy = spec.WhichOneof("policy")
    if not EPISODE_ID.fullmatch(spec.episode_id):
        raise _refused("INVALID_REQUEST", f"episode_id must be 1 to 100 of [A-Za-z0-9._-], not {spec.episode_id!r}")
    if not spec.task.suite or not spec.task.task_id:
        raise _refused("INVALID_REQUEST", "task.suite and task.task_id must be given")
    if not 1 <= spec.agent.max_turns <= MAX_TURNS:
        raise _refused("INVALID_REQUEST", f"agent.max_turns must be 1 to {MAX_TURNS}, not {spec.agent.max_turns}")
    if policy is None:
        raise _refused("INVALID_REQUEST", "policy must be set: sampled, expert or random")
    if policy == "sampled" and spec.sampled.sampling.max_tokens < 1:
        raise _refused("INVALID_REQUEST", "sampled.sampling.max_tokens must be at least 1")
    if spec.agent.prompt not in LAYOUTS:
        raise _refused("UNKNOWN_PROMPT", f"no prompt {spec.agent.prompt!r}; there are {', '.join(sorted(LAYOUTS))}")
    if not has_form(spec.agent.prompt, thinking=spec.agent.thinking):
        raise _refused("UNKNOWN_PROMPT", f"the prompt {spec.agent.prompt!r} has no form that thinks")
    if policy == "expert" and task not in EXPERTS:
        raise _refused("NO_EXPERT", f"no scripted expert plays {task}")


def _refused(reason: str, message: str) -> ServiceError:
    return ServiceError(StatusCode.INVALID_ARGUMENT, reason, message)
