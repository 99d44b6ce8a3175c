"""What a run shows of itself: who pulled at the policy, what its groups were like, and where the numbers go."""

import json
import math
import struct
from pathlib import Path

import torch
from prometheus_client import REGISTRY
from tensorboardX.proto.event_pb2 import Event
from webagent.trajectory.v1 import trajectory_pb2
from webagent_trainer.batches import LearningRow
from webagent_trainer.groups import Group
from webagent_trainer.insight import describe, pull_shares, pull_sums
from webagent_trainer.journal import Journal
from webagent_trainer.lineage import Lineage
from webagent_trainer.rows import Episode, Row
from webagent_trainer.testing import make_turn
from webagent_trainer.update import LiveGroup


def trajectory(reward: float, *lengths: int) -> trajectory_pb2.Trajectory:
    turns = [make_turn([1], [5] * length, [-0.5] * length) for length in lengths]
    return trajectory_pb2.Trajectory(reward=reward, turns=turns)


def group(*rewards: float, lost: int = 0) -> Group:
    scored = {str(index): trajectory(reward, 2, 4) for index, reward in enumerate(rewards)}
    return Group("g", "a", 1, 0, 0.0, set(), scored, lost)


def test_the_share_of_groups_without_variance_is_of_those_that_could_have_had_some() -> None:
    groups = [group(1, 0), group(0, 0), group(1, 1), group(1, 0), group(1), group(lost=2)]
    found = describe(groups, [], Lineage(), seconds=2.0, tolerance=1e-6)
    assert found["zero_variance_share"] == 0.5
    assert (found["episodes"], found["episodes_scored"], found["episodes_per_second"]) == (11.0, 9.0, 5.5)
    assert (found["turns_mean"], found["reply_tokens_mean"], found["reply_tokens_max"]) == (2.0, 3.0, 4.0)
    assert found["episode_reply_tokens_mean"] == 6.0


def test_staleness_is_a_histogram_of_the_episodes_learned_from() -> None:
    lineage = Lineage([[0], [1], [2]])
    episodes = tuple(Episode("e", 1.0, (Row((1,), (2,), (-0.5,), (version,)),), (1,)) for version in (2, 2, 1, 0))
    found = describe([], [LiveGroup("a", episodes)], lineage, seconds=1.0, tolerance=1e-6)
    assert {name: value for name, value in found.items() if name.startswith("staleness/")} == {
        "staleness/0": 2.0,
        "staleness/1": 1.0,
        "staleness/2": 1.0,
    }
    assert found["staleness"] == 0.75


def test_the_gradient_is_shared_out_by_outcome_and_by_length() -> None:
    rows = [
        LearningRow((1,), (2, 3), weight=1.0, advantage=1.0, turns=1),
        LearningRow((1,), (2,), weight=1.0, advantage=-1.0, turns=4),
        LearningRow((1,), (2,), weight=1.0, advantage=-1.0, turns=9),
    ]
    shares = pull_shares(pull_sums(torch.tensor([1.0, 2.0, 1.0, 6.0]), rows))
    assert shares == {
        "gradient_share_success": 0.3,
        "gradient_share_failure": 0.7,
        "gradient_share_turns_1_2": 0.3,
        "gradient_share_turns_3_5": 0.1,
        "gradient_share_turns_6_up": 0.6,
    }
    assert pull_shares(pull_sums(torch.zeros(4), rows)) == {}


def test_numbers_go_to_a_line_to_a_gauge_and_to_tensorboard(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write({"entropy": 0.25, "ratio_mean": math.nan}, phase="rl", iteration=300, version=7)
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["phase"], line["iteration"], line["version"], line["entropy"]) == ("rl", 300, 7, 0.25)
    assert REGISTRY.get_sample_value("webagent_training", {"phase": "rl", "metric": "entropy"}) == 0.25
    (path,) = (tmp_path / "tensorboard").iterdir()
    header, event = read_events(path.read_bytes())
    assert header.file_version == "brain.Event:2"
    # What is not finite is left out.
    assert [(event.step, value.tag, value.simple_value) for value in event.summary.value] == [(300, "rl/entropy", 0.25)]


def read_events(data: bytes) -> list[Event]:
    """Of records: length, its checksum, event, its checksum."""
    events = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events
