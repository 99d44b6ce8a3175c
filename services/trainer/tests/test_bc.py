"""Cloning learns the same rows in the same order, however the demonstrations came to be in their file."""

from itertools import permutations
from pathlib import Path

from webagent_runtime import delimited
from webagent_trainer.bc import read_demonstrations
from webagent_trainer.testing import VOCABULARY, make_demonstration

PLAYED = [(task, seed) for task in ("a", "b") for seed in (9, 10)]


def test_the_order_in_which_demonstrations_ended_does_not_decide_what_is_learned(tmp_path: Path) -> None:
    for number, played in enumerate(permutations(PLAYED)):
        path = tmp_path / str(number)
        for task, seed in played:
            trajectory = make_demonstration([PLAYED.index((task, seed))], [3])
            trajectory.episode.task.task_id, trajectory.episode.seed = task, seed
            delimited.append(path, trajectory)
        episodes = read_demonstrations(path, vocabulary=VOCABULARY)
        assert [rows[0].context for rows in episodes] == [(0,), (1,), (2,), (3,)]
