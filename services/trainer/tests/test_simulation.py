"""The loop's schedule in simulated time: rollout goes on while the trainer steps; with staleness 0 they take turns."""

from pathlib import Path

import pytest
from webagent_runtime.testing import NatsServer
from webagent_trainer.simulation import Workload, simulate


@pytest.mark.slow
async def test_a_synchronous_iteration_takes_its_longest_episode_and_its_step(nats: NatsServer, tmp_path: Path) -> None:
    work = Workload(
        max_staleness=0, iterations=3, groups=2, group_size=4, median_turns=5, percentile_99_turns=5, train_seconds=2.5
    )
    found = await simulate(work, url=nats.url, directory=tmp_path / "synchronous")
    assert found.seconds == pytest.approx(3 * (5 + 2.5))
    assert found.counts["dispatched"] == found.counts["scored"] == 24
    assert found.counts["stale"] == 0


async def test_with_staleness_the_step_hides_behind_rollout(nats: NatsServer, tmp_path: Path) -> None:
    work = Workload(
        max_staleness=1,
        iterations=4,
        groups=2,
        group_size=4,
        slots=8,
        median_turns=5,
        percentile_99_turns=5,
        train_seconds=2.5,
    )
    found = await simulate(work, url=nats.url, directory=tmp_path / "overlapped")
    # Four rollouts back to back, and the last one's step.
    assert found.seconds == pytest.approx(4 * 5 + 2.5)
    assert found.counts["stale"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("max_staleness", [0, 2])
async def test_a_single_slot_and_the_smallest_group_make_progress(
    nats: NatsServer, tmp_path: Path, max_staleness: int
) -> None:
    work = Workload(max_staleness=max_staleness, iterations=2, groups=1, group_size=2, slots=1, train_seconds=1.0)
    found = await simulate(work, url=nats.url, directory=tmp_path / f"narrow-{max_staleness}")
    assert found.counts["scored"] == 4


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_staleness_of_2_is_at_least_two_and_a_half_times_as_fast_as_taking_turns(
    nats: NatsServer, tmp_path: Path
) -> None:
    train_seconds = Workload(max_staleness=0).mean_rollout_seconds() / 2
    found = {
        staleness: await simulate(
            Workload(max_staleness=staleness, iterations=12, train_seconds=train_seconds),
            url=nats.url,
            directory=tmp_path / f"staleness-{staleness}",
        )
        for staleness in (0, 2)
    }
    assert found[2].useful_per_second >= 2.5 * found[0].useful_per_second
