"""The kinds of policy: the model that inference serves, a task's scripted expert, and chance.

All have their prompt rendered by inference, so that demonstrations and samples pass through the same code and tokens.
"""

import hashlib
from typing import Protocol

from webagent.inference.v1.inference_pb2 import (
    GenerateRequest,
    GenerateResponse,
    RenderRequest,
    RenderResponse,
    SamplingSettings,
)
from webagent.trajectory.v1.trajectory_pb2 import AgentSettings, EpisodeSpec, SampledPolicy, Turn
from webagent_runtime.errors import ServiceError

from webagent_rollout.chance import Chance
from webagent_rollout.experts import EXPERTS, Expert
from webagent_rollout.ports import ContextFullError, Policy, View
from webagent_rollout.reply import demonstrate


class Inference(Protocol):
    """What the policies need of the inference service."""

    async def render(self, request: RenderRequest) -> RenderResponse:
        """Turns messages into token ids."""

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Samples one reply; gives the request its id and session key."""


class Model:
    """The policy that is trained: Render, then Generate."""

    def __init__(self, inference: Inference, settings: SampledPolicy) -> None:
        self._inference = inference
        self._settings = settings

    async def reply(self, view: View) -> Turn:
        """Samples a reply to the conversation."""
        rendered = await self._inference.render(RenderRequest(messages=view.messages))
        request = GenerateRequest(
            prompt_token_ids=rendered.prompt_token_ids,
            sampling=settings_of_turn(self._settings.sampling, view.turn_index),
            min_weights_version=self._settings.min_weights_version,
        )
        try:
            reply = await self._inference.generate(request)
        except ServiceError as error:
            if error.reason == "PROMPT_TOO_LONG":
                raise ContextFullError(str(error)) from error
            raise
        return Turn(
            prompt_token_ids=rendered.prompt_token_ids,
            reply_token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            logprob_kind=reply.logprob_kind,
            spans=reply.spans,
            sampling=reply.sampling,
            model=reply.model,
            finish_reason=reply.finish_reason,
            reply_text=reply.text,
        )


class Demonstrator:
    """The scripted expert of a task, or chance. Its replies carry no log-probabilities."""

    def __init__(self, inference: Inference, expert: Expert, agent: AgentSettings) -> None:
        self._inference = inference
        self._expert = expert
        self._agent = agent

    async def reply(self, view: View) -> Turn:
        """Words the expert's action as a reply and has it rendered. Raises ExpertLost if the expert is at a loss."""
        action = self._expert(view.instruction, view.observation, view.past_actions)
        text = demonstrate(action, thinking=self._agent.thinking)
        rendered = await self._inference.render(RenderRequest(messages=view.messages, reply_text=text))
        return Turn(
            prompt_token_ids=rendered.prompt_token_ids,
            reply_token_ids=rendered.reply_token_ids,
            model=rendered.model,
            reply_text=text,
        )


def policy_of(spec: EpisodeSpec, inference: Inference) -> Policy:
    """Returns the policy that the episode asks for."""
    match spec.WhichOneof("policy"):
        case "expert":
            return Demonstrator(inference, EXPERTS[f"{spec.task.suite}/{spec.task.task_id}"], spec.agent)
        case "random":
            return Demonstrator(inference, Chance(spec.seed), spec.agent)
        case _:
            return Model(inference, spec.sampled)


def settings_of_turn(sampling: SamplingSettings, turn_index: int) -> SamplingSettings:
    """Gives each turn a seed of its own, drawn from the episode's, so that turns are independent and reproducible."""
    settings = SamplingSettings()
    settings.CopyFrom(sampling)
    if sampling.HasField("seed"):
        digest = hashlib.sha256(f"{sampling.seed}/{turn_index}".encode()).digest()
        settings.seed = int.from_bytes(digest[:4], "big")
    return settings
