"""The env service as a Gymnasium environment.

    env = gymnasium.make("webagent_env.gymnasium_env:webagent/Task-v0", task="miniwob/click-button")
    page, info = env.reset(seed=3)
    page, reward, terminated, truncated, info = env.step('do(action="Click", element="0")')

The observation is the text of the page, the action the text form. The reward is 1 when the task's own page says that
it succeeded, else 0; reading it needs the scope of evaluators. A task that its page does not judge is refused. An
environment fault is raised, never rewarded.
"""

from __future__ import annotations

import io
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image
from webagent.env.v1 import env_pb2

from webagent_env.client import SyncEnvClient, SyncSession

_LONGEST = 4_194_304
_SAMPLES = ('do(action="Wait")', 'do(action="Scroll Down")', 'do(action="Scroll Up")', 'do(action="Press Enter")')


class UnicodeText(spaces.Space[str]):
    """All texts up to a length. Samples are drawn from a list."""

    def __init__(self, samples: tuple[str, ...], longest: int = _LONGEST) -> None:
        super().__init__(shape=(), dtype=np.str_)
        self._samples = samples
        self._longest = longest

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """One of the list."""
        return self._samples[int(self.np_random.integers(len(self._samples)))]

    def contains(self, x: Any) -> bool:
        """Whether it is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self._longest

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no fixed size."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and vars(other)["_longest"] == self._longest

    def __hash__(self) -> int:
        return hash((type(self), self._longest))


class TaskEnv(gymnasium.Env[str, str]):
    """Episodes of one task. `task` is "suite/task", `target` the service's address."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  Gymnasium declares it so

    def __init__(
        self,
        task: str = "miniwob/click-button",
        target: str = "127.0.0.1:50051",
        options: env_pb2.SessionOptions | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = UnicodeText(("",))
        self.action_space = UnicodeText(_SAMPLES)
        self.render_mode = render_mode
        self._task = task
        self._options = options
        self._client = SyncEnvClient(target)
        self._session: SyncSession | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Opens a session; the seed is the task's, and without one it is drawn."""
        super().reset(seed=seed)
        self._end()
        chosen = seed if seed is not None else int(self.np_random.integers(2**31))
        self._session = self._client.open(self._task, seed=chosen, options=self._options)
        if self._session.rule().WhichOneof("dialect") != "native":
            self._end()
            raise gymnasium.error.Error(f"{self._task} is not judged by its own page, so there is no reward to give")
        return self._session.observation.text, self._info(chosen)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one action in the text form."""
        session = self._open_session()
        answer = session.act(action)
        judgement = session.judge() if answer.terminated else None
        reward = 1.0 if judgement is not None and judgement.success else 0.0
        info = {
            "status": env_pb2.ActionStatus.Name(answer.result.status),
            "message": answer.result.message,
            "url": answer.observation.url,
        }
        return answer.observation.text, reward, answer.terminated, answer.truncated, info

    def render(self) -> Any:
        """A screenshot as an array of height, width and color."""
        if self.render_mode != "rgb_array":
            return None
        shot = self._open_session().observe(env_pb2.OBSERVATION_KIND_SCREENSHOT).screenshot
        with Image.open(io.BytesIO(shot)) as image:
            return np.asarray(image.convert("RGB"))

    def close(self) -> None:
        """Closes the session and the connection."""
        self._end()
        self._client.close()

    def _info(self, seed: int) -> dict[str, Any]:
        session = self._open_session()
        return {"instruction": session.instruction, "session_id": session.info.session_id, "seed": seed}

    def _open_session(self) -> SyncSession:
        if self._session is None:
            raise gymnasium.error.ResetNeeded("reset() comes before the first step")
        return self._session

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def register() -> None:
    """Makes `gymnasium.make("webagent/Task-v0")` work."""
    if "webagent/Task-v0" not in gymnasium.registry:
        gymnasium.register("webagent/Task-v0", entry_point="webagent_env.gymnasium_env:TaskEnv")


register()
