"""`kill -9` and Ctrl-C in the middle of training: the run goes on or can go on, the ledger adds up, nothing is left."""

import json
from collections.abc import Callable

import pytest
from webagent_cli.ledger import check_sums, read_counts

from tests.e2e.loop import Loop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def assert_finished(loop: Loop) -> None:
    assert loop.wait() == 0, loop.output
    result = json.loads(loop.run.result.read_text())
    assert set(result["overall"]) == {"zero_shot", "bc", "rl"}
    assert result["overall"]["rl"]["n"] + result["overall"]["rl"]["invalid"] == 6
    assert loop.run.report.is_file()
    counts = read_counts(loop.run)
    check_sums(counts)
    assert counts["open"] == 0
    assert loop.left_behind() == []


@pytest.mark.parametrize("victim", ["env", "inference", "evaluator", "rollout", "trainer"])
def test_a_service_that_is_killed_while_training_comes_back(victim: str, start_loop: Callable[..., Loop]) -> None:
    loop = start_loop()
    loop.until_rl()
    service = loop.service(victim)
    assert service is not None
    service.kill()
    loop.until(lambda: loop.service(victim) not in {None, service}, what=f"new {victim}")
    assert_finished(loop)
    assert json.loads(loop.run.result.read_text())["restarts"].get(victim, 0) >= 1


def test_ctrl_c_ends_everything_and_resume_goes_on(start_loop: Callable[..., Loop]) -> None:
    loop = start_loop()
    loop.until_rl()
    loop.interrupt()
    assert loop.wait(60) == 130
    assert loop.left_behind() == []
    check_sums(read_counts(loop.run))
    assert_finished(start_loop("--resume"))


def test_ctrl_c_twice_in_a_row_leaves_nothing(start_loop: Callable[..., Loop]) -> None:
    loop = start_loop()
    loop.until(loop.run.metrics.is_file, what="training step")
    loop.interrupt()
    loop.interrupt()
    loop.wait(60)
    assert loop.left_behind() == []


def test_killing_the_command_leaves_nothing(start_loop: Callable[..., Loop]) -> None:
    loop = start_loop()
    loop.until(lambda: loop.service("rollout") is not None, what="rollout")
    loop.family()
    loop.process.kill()
    loop.process.wait(60)
    for one in list(loop.seen.values()):
        one.wait(timeout=60)
    assert loop.left_behind() == []
