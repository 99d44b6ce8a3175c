"""The report: one self-contained page from a run's files."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from webagent.env.v1 import env_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_cli import charts
from webagent_cli.config import LoopConfig, load_loop
from webagent_cli.episodes import Trajectory
from webagent_cli.evaluation import evaluation_jobs
from webagent_cli.iterations import Iteration, read_iterations
from webagent_cli.report import EPISODES, choose_episodes, write_report
from webagent_cli.result import Difference, Rate, Result, outcomes_of
from webagent_cli.runs import Run
from webagent_runtime import delimited

ROOT = Path(__file__).resolve().parents[3]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MORE = {"entropy": 0.5, "gradient_share_success": 0.6, "gradient_share_failure": 0.4, "staleness": 0.0}
MORE |= {"zero_variance_share": 0.25, "invalid_share": 0.0}
INSTRUCTION = 'Click "<b>OK</b>".'


def episode(task: str, seed: int, *, success: bool, picture: trajectory_pb2.PayloadRef | None) -> Trajectory:
    trajectory = Trajectory(
        episode=trajectory_pb2.EpisodeSpec(task=env_pb2.TaskRef(suite="miniwob", task_id=task), seed=seed),
        status=trajectory_pb2.EPISODE_STATUS_SCORED,
        instruction=INSTRUCTION,
        end_reason=trajectory_pb2.END_REASON_PAGE,
    )
    trajectory.verdict.outcome = evaluator_pb2.OUTCOME_SUCCESS if success else evaluator_pb2.OUTCOME_FAILURE
    turn = trajectory.turns.add(reply_text='do(action="Click", element="1")', observation_text="<button>OK</button>")
    turn.result.status = env_pb2.ACTION_STATUS_OK
    if picture is not None:
        turn.screenshot_ref.CopyFrom(picture)
    return trajectory


def rate(successes: int, n: int) -> Rate:
    return Rate(successes=successes, n=n, invalid=0, rate=successes / n, low=0.1, high=0.9)


@pytest.fixture
def config() -> LoopConfig:
    return load_loop(ROOT / "configs" / "quick.yaml", {"eval.seeds": {"first": 0, "count": 10}})


@pytest.fixture
def run(tmp_path: Path, config: LoopConfig) -> Run:
    """A finished run: cloning failed every page, RL solved the even seeds."""
    run = Run(tmp_path / "finished")
    run.payloads.mkdir(parents=True)
    run.config.write_text(config.to_yaml())
    (run.payloads / "page.png").write_bytes(PIXEL)
    digest = hashlib.sha256(PIXEL).hexdigest()
    picture = trajectory_pb2.PayloadRef(uri="file:///elsewhere/payloads/page.png", sha256=digest)
    for phase in ("bc", "rl"):
        for job in evaluation_jobs(config, phase):
            success = phase == "rl" and job.seed % 2 == 0
            kept = picture if job.screenshots else None
            delimited.append(run.episodes(phase), episode(job.task, job.seed, success=success, picture=kept))
    iterations = [
        Iteration(phase="rl", iteration=i, at=0.0, metrics={"reward_mean": i / 10, "ratio_mean": 1.001} | MORE)
        for i in range(1, 6)
    ]
    result = Result(
        run=run.id,
        variant="r1",
        seed=0,
        temperature=1.0,
        finished_at="2026-01-02T03:04:05+00:00",
        overall={"zero_shot": rate(0, 80), "bc": rate(20, 80), "rl": rate(40, 80)},
        tasks={task: {"bc": rate(2, 10), "rl": rate(5, 10)} for task in config.tasks.ids},
        differences={"rl_minus_bc": Difference(pairs=80, mean=0.25, low=0.15, high=0.35)},
        wall_seconds={"bc": 60.0, "rl": 540.0},
        total_seconds=600.0,
        seeds={},
        policy_versions={"bc": 1, "rl": 6},
        iterations=iterations,
        ratio_mean=[1.001] * 5,
        ledger={"dispatched": 640, "scored": 640},
        restarts={},
        peak_memory_bytes=8 * 2**30,
        cores=2,
        memory_bytes=24 * 2**30,
        git_commit="0123456789abcdef",
        versions={"model": "smollm2-135m-instruct"},
    )
    run.result.write_text(result.model_dump_json())
    return run


def test_the_page_is_whole_and_needs_nothing_else(run: Run) -> None:
    page = write_report(run).read_text()
    HTMLParser().feed(page)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "@import" not in page
    assert page.count('<details class="episode"') == EPISODES
    assert base64.b64encode(PIXEL).decode() in page
    assert "+25.0 points" in page
    for title in ("Entropy", "Whose tokens pull", "What teaches nothing"):
        assert title in page
    # All of its numbers are 0.
    assert "Versions between" not in page
    assert "10 min 00 s" in page


def test_what_pages_and_replies_say_never_becomes_markup(run: Run) -> None:
    page = write_report(run).read_text()
    assert "<b>OK</b>" not in page
    assert "&lt;b&gt;OK&lt;/b&gt;" in page


def test_the_chosen_episodes_show_tasks_in_turn_and_failures(run: Run, config: LoopConfig) -> None:
    later = outcomes_of(run, config, "rl")
    chosen = choose_episodes(later, {})
    outcomes = [one.verdict.outcome for one in chosen]
    assert len(chosen) == EPISODES
    assert outcomes.count(evaluator_pb2.OUTCOME_FAILURE) == 4
    successes = {one.episode.task.task_id for one in chosen if one.verdict.outcome == evaluator_pb2.OUTCOME_SUCCESS}
    assert successes == set(config.tasks.ids)


def test_a_payload_that_is_not_the_one_meant_is_not_shown(run: Run) -> None:
    (run.payloads / "page.png").write_bytes(b"other")
    assert "no screenshot" in write_report(run).read_text()


def test_charts_take_their_colours_from_the_page_and_are_the_same_each_time() -> None:
    lines = [charts.Series("<better>", [(1, 0.5), (2, 0.75)], "--rl"), charts.Series("worse", [(1, 0.5), (2, 0.25)])]
    picture = charts.line_chart(lines, label="Whose & what", percent=True)
    assert picture == charts.line_chart(lines, label="Whose & what", percent=True)
    assert picture.startswith("<svg")
    assert 'aria-label="Whose &amp; what"' in picture
    assert "&lt;better&gt;" in picture
    assert {"var(--rl)", "var(--accent)", "var(--soft)"} <= set(re.findall(r"var\(--\w+\)", picture))
    assert "#fe01" not in picture
    assert ">75 %<" in picture


def test_a_repeated_iteration_counts_as_it_was_last_written(run: Run) -> None:
    lines = [(1, 0.1), (2, 0.2), (3, float("nan")), (2, 0.9)]
    run.metrics.write_text(
        "".join(
            json.dumps({"time": 0.0, "phase": "rl", "iteration": i, "version": i, "reward_mean": v}) + "\n"
            for i, v in lines
        )
        + '{"time": 0.0, "pha'
    )
    read = [(one.iteration, one.metrics) for one in read_iterations(run)]
    assert read == [(1, {"reward_mean": 0.1}), (2, {"reward_mean": 0.9}), (3, {})]
