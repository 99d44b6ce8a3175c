"""Seeds of turns, and what the domain may know."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from webagent.inference.v1.inference_pb2 import SamplingSettings
from webagent_rollout.policies import settings_of_turn


@given(st.integers(0, 2**64 - 1), st.integers(0, 99))
def test_each_turn_has_a_seed_of_its_own_that_the_episode_s_seed_decides(seed: int, turn: int) -> None:
    settings = SamplingSettings(temperature=1.0, max_tokens=8, seed=seed)
    first, again = settings_of_turn(settings, turn), settings_of_turn(settings, turn)
    assert first == again
    assert first.seed != settings_of_turn(settings, turn + 1).seed
    assert settings.seed == seed


def test_without_a_seed_turns_have_none() -> None:
    assert not settings_of_turn(SamplingSettings(temperature=1.0, max_tokens=8), 3).HasField("seed")


def test_the_loop_imports_no_grpc() -> None:
    code = "import sys, webagent_rollout.episode; print('grpc' in sys.modules, 'nats' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == ["False", "False"]
