"""Evaluations as tables, beside other runs and published numbers, judged again, and as studies with their plots."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from service_process import StartService
from webagent.env.v1 import env_pb2, probe_pb2
from webagent.evaluator.v1 import evaluator_pb2
from webagent.trajectory.v1 import trajectory_pb2
from webagent_cli.clients import Clients
from webagent_cli.comparison import compared, find_episodes
from webagent_cli.config import LoopConfig, PortsConfig, load_loop
from webagent_cli.episodes import Job, Player, Trajectory
from webagent_cli.published import SITES, TABLE_2
from webagent_cli.rescoring import Manner, rescore_episodes
from webagent_cli.runs import new_run
from webagent_cli.stack import Addresses
from webagent_cli.studies import write_studies
from webagent_cli.study import arms_of, budgets_of, by_arms, by_samples
from webagent_cli.tables import sheet_of
from webagent_runtime import delimited
from webagent_runtime.config import ConfigError

ROOT = Path(__file__).resolve().parents[3]
COUNTS = {"shopping": 45, "shopping_admin": 35, "gitlab": 30, "map": 26, "reddit": 19, "wikipedia": 10}
SUCCESS, FAILURE, INVALID = (
    evaluator_pb2.OUTCOME_SUCCESS,
    evaluator_pb2.OUTCOME_FAILURE,
    evaluator_pb2.OUTCOME_INVALID,
)


def episode(site: str, number: int, outcome: evaluator_pb2.Outcome, suite: str = "webarena-lite") -> Trajectory:
    """A judged episode of a task whose right answer is "3", answered by "3" and a space."""
    spec = trajectory_pb2.EpisodeSpec(task=env_pb2.TaskRef(suite=suite, task_id=f"{site}-{number}"))
    one = Trajectory(episode=spec, status=trajectory_pb2.EPISODE_STATUS_SCORED)
    one.verdict.outcome = outcome
    one.verdict.answer = "3 "
    if outcome == INVALID:
        one.status = trajectory_pb2.EPISODE_STATUS_INVALID
        return one
    one.verdict.rule.site = site if suite == "webarena-lite" else ""
    one.verdict.rule.webarena.dialect = probe_pb2.WEB_ARENA_DIALECT_VAB_LITE
    one.verdict.rule.webarena.eval_json = '{"eval_types": ["string_match"], "reference_answers": {"exact_match": "3"}}'
    return one


@pytest.fixture(scope="module")
def port(start_service: StartService) -> int:
    return int(start_service("evaluator").address.rpartition(":")[2])


@pytest.fixture
async def clients(port: int) -> AsyncIterator[Clients]:
    async with Clients(Addresses(PortsConfig(evaluator=port))) as opened:
        yield opened


async def test_a_whole_benchmark_is_a_row_of_the_paper_s_form(clients: Clients) -> None:
    whole = [episode(site, n, SUCCESS if n % 2 else FAILURE) for site, count in COUNTS.items() for n in range(count)]
    sheet = sheet_of(await compared(clients, {"mine": whole}), published=True)
    assert sheet.header == ["", "Reddit", "GitLab", "CMS", "Map", "Shopping", "Avg"]
    assert sheet.lines[0][0] == "mine"
    assert sheet.lines[0][1] == "47 % [27, 68] n=19"
    assert sheet.lines[0][-1].endswith("n=165")
    assert sheet.lines[-1] == ["Llama3.1-8B, WebAgent-R1 †", "47.4 %", "56.7 %", "57.1 %", "23.1 %", "44.4 %", "44.8 %"]
    assert [note for note in sheet.notes if "INCOMPLETE" in note] == []
    assert "published on WebArena-Lite's 165 tasks" in sheet.notes[-1]


async def test_what_is_not_scored_makes_the_table_incomplete_and_is_counted(clients: Clients) -> None:
    some = [episode(site, n, SUCCESS) for site, count in COUNTS.items() for n in range(count)]
    some[0] = episode("shopping", 0, INVALID)
    other = [episode("shopping", 0, SUCCESS)]
    sheet = sheet_of((await compared(clients, {"mine": some, "other": other}))[:1])
    assert sheet.notes == ["INCOMPLETE: mine lacks 1 of shopping."]
    assert "44 +1 invalid" in sheet.lines[0][5]


async def test_runs_stand_side_by_side_and_are_paired(clients: Clients) -> None:
    mine = [episode("click", n, SUCCESS, "miniwob") for n in range(4)]
    theirs = [episode("click", n, FAILURE if n else SUCCESS, "miniwob") for n in range(4)]
    sheet = sheet_of(await compared(clients, {"rl": mine, "bc": theirs}))
    assert sheet.header == ["task", "rl", "bc"]
    with pytest.raises(ConfigError, match="the paper's sites"):
        sheet_of(await compared(clients, {"rl": mine}), published=True)
    assert sheet.lines[-1][0] == "overall"
    assert sheet.notes == ["rl minus bc: +75 points [+26, +100] over 4 pairs."]
    assert sheet.markdown().startswith("| task | rl | bc |\n| --- | --- | --- |\n| click-0 |")


async def test_another_dialect_judges_stored_episodes_again(clients: Clients) -> None:
    episodes = [episode("gitlab", 0, FAILURE), episode("gitlab", 1, INVALID)]
    wanted = evaluator_pb2.RescoreRequest(dialect=probe_pb2.WEB_ARENA_DIALECT_UPSTREAM)
    again = await rescore_episodes(clients, episodes, wanted)
    ((_, changed),) = again.changes
    assert (changed.verdict.outcome, changed.reward) == (SUCCESS, 1.0)
    assert again.kept == {"NO_EVIDENCE": 1}
    assert again.episodes == [changed, episodes[1]]


async def test_silence_is_judged_again_as_a_refusal_where_that_is_wanted(clients: Clients) -> None:
    silent = episode("map", 0, FAILURE)
    silent.verdict.ClearField("answer")
    silent.verdict.rule.webarena.eval_json = (
        '{"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["N/A"]}}'
    )
    wanted = Manner(unanswered_is_na=True).request()
    assert (await rescore_episodes(clients, [silent], wanted)).changes[0][1].verdict.outcome == SUCCESS


def test_what_was_judged_in_different_manners_lies_in_different_files() -> None:
    manners = [Manner(dialect, strict, na) for dialect in (None, "verified") for strict in (None, False, True)
               for na in (None, False, True)]  # fmt: skip
    assert len({manner.suffix() for manner in manners}) == len(manners)
    assert Manner("verified", strict=True).suffix() == ".rescored-verified-strict"


def test_a_comparison_names_a_run_and_maybe_a_phase(tmp_path: Path) -> None:
    run = new_run(tmp_path, "r", label="eval")
    run.config.write_text("")
    with pytest.raises(ConfigError, match="has no evaluation yet"):
        find_episodes(tmp_path, "r")
    for phase in ("v0_t1", "v0_t1.rescored"):
        delimited.append(run.episodes(phase), episode("map", 1, SUCCESS))
    assert find_episodes(tmp_path, "r")[0] == "r v0_t1"
    assert find_episodes(tmp_path, "r:v0_t1.rescored")[0] == "r v0_t1.rescored"
    with pytest.raises(ConfigError, match="it has v0_t1"):
        find_episodes(tmp_path, "r:other")


def test_episodes_of_earlier_settings_are_not_counted_with_the_last_ones(tmp_path: Path, config: LoopConfig) -> None:
    run = new_run(tmp_path, "r", label="eval")
    run.config.write_text("")
    longer = config.model_copy(update={"agent": config.agent.model_copy(update={"max_turns": 30})})
    before, after = Player("r", "v0_t1", config), Player("r", "v0_t1", longer)
    kept = [(Job("a", 1, True), after), (Job("b", 1, False), after)]
    for job, player in ((Job("a", 1), before), (Job("c", 2), before), *kept):
        one = episode("click", 0, SUCCESS, "miniwob")
        one.episode.CopyFrom(player.spec(job))
        delimited.append(run.episodes("v0_t1"), one)
    name, found = find_episodes(tmp_path, "r")
    assert name == "r v0_t1 (last settings)"
    assert [(one.episode.task.task_id, one.episode.agent.max_turns) for one in found] == [("a", 30), ("b", 30)]


def test_every_published_row_has_a_number_for_each_column() -> None:
    assert all(len(values) == len(SITES) + 1 for _, values in TABLE_2)
    assert len(TABLE_2) == 16


# ---- studies ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def config() -> LoopConfig:
    return load_loop(ROOT / "configs" / "quick.yaml")


def test_the_arms_of_a_study_differ_in_one_thing(config: LoopConfig) -> None:
    turns = arms_of("turns", config, budgets=budgets_of("10, 5"), samples=1)
    assert [(arm.name, arm.config.evaluated_agent.max_turns) for arm in turns] == [("turns-5", 5), ("turns-10", 10)]
    thinking = arms_of("thinking", config, budgets=[], samples=1)
    assert [arm.config.agent.thinking for arm in thinking] == [False, True]
    samples = arms_of("samples", config, budgets=[], samples=3)
    seeds = {Player("r", "p", config, sample=arm.sample).spec(Job("a", 7)).sampled.sampling.seed for arm in samples}
    assert len(seeds) == 3
    with pytest.raises(ConfigError, match="unknown study"):
        arms_of("luck", config, budgets=[], samples=1)
    with pytest.raises(ConfigError, match="--budgets takes"):
        budgets_of("5,many")


async def test_several_samples_of_a_page_give_pass_at_k(clients: Clients, config: LoopConfig) -> None:
    arms = arms_of("samples", config, budgets=[], samples=2)
    first = [episode("click", n, SUCCESS if n == 0 else FAILURE, "miniwob") for n in range(4)]
    second = [episode("click", n, SUCCESS if n < 2 else FAILURE, "miniwob") for n in range(4)]
    found = await by_samples(clients, "samples", list(zip(arms, (first, second), strict=True)))
    assert found.lines == [["1", "37.5 %", "37.5 %"], ["2", "50.0 %", "37.5 %"]]
    assert found.picture().startswith("<svg")


async def test_a_study_is_a_table_and_a_plot_in_the_report(
    clients: Clients, config: LoopConfig, tmp_path: Path
) -> None:
    run = new_run(tmp_path, "swept", label="study")
    run.config.write_text(config.to_yaml())
    arms = arms_of("turns", config, budgets=[5, 10], samples=1)
    few = [episode("click", n, FAILURE, "miniwob") for n in range(4)]
    more = [episode("click", n, SUCCESS if n else FAILURE, "miniwob") for n in range(4)]
    found = await by_arms(clients, "turns", list(zip(arms, (few, more), strict=True)))
    run.study("turns").write_text(found.model_dump_json())
    write_studies(run)
    page = run.report.read_text()
    assert "<svg" in page
    assert "75 % [30, 95] n=4" in page
    assert "turns-5 minus turns-10: -75 points" in page
