"""What the agent loop asks of the world: a browser session, a policy, an evaluator, a place for large payloads.

A port raises ServiceError with a stable reason for a fault of what lies behind it, once repeating cannot mend it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from webagent.env.v1.env_pb2 import CreateSessionResponse, StepResponse
from webagent.evaluator.v1.evaluator_pb2 import Verdict
from webagent.inference.v1.inference_pb2 import Message
from webagent.trajectory.v1.trajectory_pb2 import EpisodeSpec, PayloadRef, Turn


class Session(Protocol):
    """One browser session, from before its creation until after its end."""

    @property
    def session_id(self) -> str:
        """Chosen before the session exists."""

    @property
    def address(self) -> str:
        """The env replica that holds the session."""

    async def create(self, spec: EpisodeSpec) -> CreateSessionResponse:
        """Opens the session on the episode's task."""

    async def step(self, index: int, action_text: str) -> StepResponse:
        """Takes one action."""

    async def close(self) -> None:
        """Closes the session, and may be called whatever became of `create`. Bounded; never raises ServiceError."""


@dataclass(frozen=True)
class View:
    """What a policy is shown: the composed conversation, and its parts for a policy that is no language model."""

    messages: Sequence[Message]
    instruction: str
    observation: str
    past_actions: Sequence[str]
    turn_index: int


class Policy(Protocol):
    """Who acts. A model, a scripted expert or chance."""

    async def reply(self, view: View) -> Turn:
        """Returns a turn with prompt, reply and their provenance. Raises ContextFullError if that does not fit."""


class Evaluator(Protocol):
    """Who judges."""

    async def evaluate(self, session: Session, answer: str | None) -> Verdict:
        """Judges the episode that ended; `answer` None means that the agent gave none."""


class Payloads(Protocol):
    """Where large payloads go."""

    async def put(self, name: str, data: bytes, media_type: str) -> PayloadRef:
        """Stores a payload under a name and returns its reference."""


class ContextFullError(Exception):
    """The prompt no longer fits the model's context."""


@dataclass(frozen=True)
class Ports:
    """The world of one attempt at one episode."""

    session: Session
    policy: Policy
    evaluator: Evaluator
    payloads: Payloads
