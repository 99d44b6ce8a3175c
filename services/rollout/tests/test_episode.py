"""The agent loop against a real browser and a real evaluator; the policy is scripted by contract."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
from webagent.env.v1 import env_pb2
from webagent.inference.v1.inference_pb2 import FINISH_REASON_STOP, LOGPROB_KIND_RAW
from webagent.trajectory.v1 import trajectory_pb2 as tp
from webagent_rollout.config import RolloutConfig
from webagent_rollout.episode import Played, Started
from webagent_rollout.player import Player
from webagent_rollout.testing import END, MODEL, Process, ScriptedPolicy, env_process, episode, live_sessions, request
from webagent_runtime.errors import ServiceError
from webagent_runtime.payloads import PayloadStore

SCROLL = 'do(action="Scroll Down")'
RIGHT = 'do(action="Click", element="0")'  # click-test shows one button and nothing else


async def test_a_sampled_episode_carries_ids_logprobs_and_provenance(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: RIGHT
    events: list[Started | Played] = []

    async def tell(event: Started | Played) -> None:
        events.append(event)

    trajectory = await player.play(request(episode("sampled")), delivery=1, tell=tell)
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 1.0), trajectory
    assert trajectory.end_reason == tp.END_REASON_PAGE
    assert trajectory.verdict.rule.task.task_id == "click-test"
    (turn,) = trajectory.turns
    assert bytes(turn.prompt_token_ids).decode() == policy.prompts[0]
    assert list(turn.reply_token_ids) == [*RIGHT.encode(), END]
    assert len(turn.logprobs) == len(turn.reply_token_ids)
    assert (turn.logprob_kind, turn.finish_reason) == (LOGPROB_KIND_RAW, FINISH_REASON_STOP)
    assert (turn.model, turn.spans[0].weights_version, turn.sampling.temperature) == (MODEL, 3, 1.0)
    assert turn.observation_text in policy.prompts[0]
    assert turn.action_text == RIGHT
    assert turn.step_seconds > 0
    assert [type(event) for event in events] == [Started, Played]
    assert events[0].instruction == trajectory.instruction in policy.prompts[0]


async def test_an_expert_s_episode_is_rendered_and_has_no_logprobs(player: Player, policy: ScriptedPolicy) -> None:
    spec = episode("expert", "enter-text", expert=True, thinking=True)
    trajectory = await player.play(request(spec), delivery=1)
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 1.0), trajectory
    assert len(trajectory.turns) == 2
    for turn in trajectory.turns:
        assert bytes(turn.reply_token_ids[:-1]).decode() == turn.reply_text
        assert f"<answer>{turn.action_text}</answer>" in turn.reply_text
        assert not turn.logprobs
    assert f"[assistant]{trajectory.turns[0].reply_text}" in bytes(trajectory.turns[1].prompt_token_ids).decode()


async def test_a_rejected_reply_uses_up_a_turn_and_is_answered_in_the_next(
    player: Player, policy: ScriptedPolicy
) -> None:
    policy.script = lambda prompt: RIGHT if "Last action failed: " in prompt else "let me see"
    trajectory = await player.play(request(episode("rejected", max_unusable_replies=2)), delivery=1)
    assert [t.result.status for t in trajectory.turns] == [env_pb2.ACTION_STATUS_REJECTED, env_pb2.ACTION_STATUS_OK]
    assert trajectory.reward == 1.0
    assert "[assistant]let me see" in policy.prompts[1]
    assert policy.prompts[1].count(trajectory.turns[0].observation_text) == 1


async def test_unusable_replies_in_a_row_end_the_episode(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: "let me see" if prompt.count("[assistant]") != 1 else SCROLL
    spec = episode("unusable", max_turns=9, max_unusable_replies=2)
    trajectory = await player.play(request(spec), delivery=1)
    assert trajectory.end_reason == tp.END_REASON_UNUSABLE_REPLIES
    assert len(trajectory.turns) == 4
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 0.0)


async def test_equal_actions_in_a_row_end_the_episode(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: 'do(action="Wait")' if prompt.count("[assistant]") == 1 else SCROLL
    trajectory = await player.play(request(episode("equal", max_turns=9, max_equal_actions=2)), delivery=1)
    assert trajectory.end_reason == tp.END_REASON_EQUAL_ACTIONS
    assert len(trajectory.turns) == 4
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 0.0)


async def test_chance_plays_an_episode_without_a_model(player: Player, policy: ScriptedPolicy) -> None:
    spec = episode("chance", max_turns=3)
    spec.random.SetInParent()
    first, again = [await player.play(request(spec), delivery=1) for _ in range(2)]
    assert first.status == tp.EPISODE_STATUS_SCORED
    assert all(turn.result.status == env_pb2.ACTION_STATUS_OK for turn in first.turns)
    assert [turn.action_text for turn in first.turns] == [turn.action_text for turn in again.turns]
    assert not policy.requests


async def test_the_verdict_is_asked_for_when_the_turn_budget_is_used_up(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: SCROLL
    trajectory = await player.play(request(episode("budget", max_turns=2)), delivery=1)
    assert trajectory.end_reason == tp.END_REASON_TURN_BUDGET
    assert len(trajectory.turns) == 2
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 0.0)
    assert not trajectory.verdict.HasField("answer")


async def test_the_message_of_exit_is_the_answer(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: 'exit(message="Ana")'
    trajectory = await player.play(request(episode("exit")), delivery=1)
    assert trajectory.end_reason == tp.END_REASON_EXIT
    assert trajectory.verdict.answer == "Ana"
    assert (trajectory.status, trajectory.reward) == (tp.EPISODE_STATUS_SCORED, 0.0)


async def test_a_prompt_that_outgrows_the_context_ends_the_episode(player: Player, policy: ScriptedPolicy) -> None:
    def script(prompt: str) -> str:
        policy.max_prompt_tokens = 0
        return SCROLL

    policy.script = script
    trajectory = await player.play(request(episode("full")), delivery=1)
    assert trajectory.end_reason == tp.END_REASON_CONTEXT_FULL
    assert (trajectory.status, len(trajectory.turns)) == (tp.EPISODE_STATUS_SCORED, 1)


async def test_a_first_page_that_does_not_fit_is_no_failure_of_the_policy(
    player: Player, policy: ScriptedPolicy
) -> None:
    policy.max_prompt_tokens = 0
    trajectory = await player.play(request(episode("unfit")), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "PROMPT_TOO_LONG")
    assert not trajectory.HasField("reward")


async def test_inference_that_says_not_now_is_waited_for(player: Player, policy: ScriptedPolicy) -> None:
    policy.script = lambda prompt: RIGHT
    for reason in ("VERSION_NOT_READY", "DRAINING"):
        policy.faults.append(ServiceError(grpc.StatusCode.UNAVAILABLE, reason, "not now", retry_after=0.01))
    policy.faults.append(ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "not now", retry_after=0.01))
    trajectory = await player.play(request(episode("not-now")), delivery=1)
    assert trajectory.reward == 1.0


async def test_a_fault_of_inference_is_invalid_with_its_reason(
    player: Player, policy: ScriptedPolicy, env: Process
) -> None:
    policy.faults.append(ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "UNSUPPORTED_SAMPLING", "no"))
    trajectory = await player.play(request(episode("fault")), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "UNSUPPORTED_SAMPLING")
    assert not trajectory.HasField("reward")
    assert await live_sessions(env.address, "fault") == []


async def test_a_deadline_that_passes_on_the_way_is_expired_and_closes_the_session(
    player: Player, policy: ScriptedPolicy, env: Process
) -> None:
    policy.before_reply = asyncio.Event().wait
    trajectory = await player.play(request(episode("deadline"), seconds=2), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_EXPIRED, "DEADLINE")
    assert trajectory.detail.startswith("the deadline passed")
    assert await live_sessions(env.address, "deadline") == []


async def test_an_episode_over_its_limit_is_invalid(
    config: RolloutConfig, payloads: PayloadStore, policy: ScriptedPolicy
) -> None:
    policy.before_reply = asyncio.Event().wait
    short = config.model_copy(update={"limits": config.limits.model_copy(update={"episode_seconds": 1.5})})
    player = Player(short, payloads)
    trajectory = await player.play(request(episode("limit")), delivery=1)
    await player.close()
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "EPISODE_TIMEOUT")


async def test_a_request_past_its_deadline_opens_nothing(player: Player, policy: ScriptedPolicy) -> None:
    trajectory = await player.play(request(episode("late"), seconds=-1), delivery=1)
    assert trajectory.status == tp.EPISODE_STATUS_EXPIRED
    assert not trajectory.turns
    assert not trajectory.instruction


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": "nosuch"}, "UNKNOWN_PROMPT"),
        ({"max_turns": 0}, "INVALID_REQUEST"),
        ({"max_turns": 101}, "INVALID_REQUEST"),
    ],
)
async def test_an_episode_that_cannot_be_played_as_asked_is_invalid(
    player: Player, change: dict[str, object], reason: str
) -> None:
    trajectory = await player.play(request(episode("refused", **change)), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, reason)


async def test_a_task_without_an_expert_or_without_a_page_is_invalid(player: Player) -> None:
    lost = await player.play(request(episode("no-expert", "nosuch", expert=True)), delivery=1)
    unknown = await player.play(request(episode("no-task", "nosuch")), delivery=1)
    assert (lost.reason, unknown.reason) == ("NO_EXPERT", "TASK_NOT_FOUND")


async def test_screenshots_and_long_pages_go_by_reference(
    player: Player, policy: ScriptedPolicy, payloads: PayloadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webagent_rollout.episode.MAX_INLINE_OBSERVATION_BYTES", 10)
    policy.script = lambda prompt: RIGHT
    trajectory = await player.play(request(episode("shots", screenshots=True)), delivery=1)
    (turn,) = trajectory.turns
    assert turn.observation_text == ""
    assert (await payloads.get(turn.observation_ref)).decode() in policy.prompts[0]
    assert (await payloads.get(turn.screenshot_ref)).startswith(b"\x89PNG")


@pytest.fixture
def mortal() -> Iterator[Process]:
    with TemporaryDirectory(prefix="env-") as directory:
        process = env_process(Path(directory))
        process.start()
        yield process
        process.stop()


@pytest.fixture
async def mortal_player(config: RolloutConfig, payloads: PayloadStore, mortal: Process) -> AsyncIterator[Player]:
    target = config.env.model_copy(update={"target": mortal.address})
    player = Player(config.model_copy(update={"env": target}), payloads)
    yield player
    await player.close()


async def test_env_restarting_in_the_middle_is_invalid_and_never_a_reward(
    mortal_player: Player, policy: ScriptedPolicy, mortal: Process
) -> None:
    async def restart() -> None:
        await asyncio.to_thread(mortal.kill)
        await asyncio.to_thread(mortal.start)

    policy.script = lambda prompt: RIGHT
    policy.before_reply = restart
    trajectory = await mortal_player.play(request(episode("restarted")), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "SESSION_NOT_FOUND")
    assert not trajectory.HasField("reward")


@pytest.mark.slow
async def test_env_staying_away_is_invalid_after_the_time_for_outages(
    mortal_player: Player, policy: ScriptedPolicy, mortal: Process
) -> None:
    async def kill() -> None:
        await asyncio.to_thread(mortal.kill)

    policy.script = lambda prompt: RIGHT
    policy.before_reply = kill
    trajectory = await mortal_player.play(request(episode("killed")), delivery=1)
    assert (trajectory.status, trajectory.reason) == (tp.EPISODE_STATUS_INVALID, "UNAVAILABLE")
    assert not trajectory.HasField("reward")
    await asyncio.to_thread(mortal.start)  # Clears the dead one's browser away.


async def test_many_episodes_play_at_once(player: Player, policy: ScriptedPolicy, env: Process) -> None:
    together = asyncio.Barrier(8)
    policy.before_reply = together.wait
    policy.script = lambda prompt: RIGHT
    names = [f"many{i}" for i in range(8)]
    trajectories = await asyncio.gather(*(player.play(request(episode(name)), delivery=1) for name in names))
    assert [t.reward for t in trajectories] == [1.0] * 8
    assert await live_sessions(env.address, "many0") == []


async def test_cancelling_an_episode_closes_its_session(player: Player, policy: ScriptedPolicy, env: Process) -> None:
    asked = asyncio.Event()

    async def wait_for_ever() -> None:
        asked.set()
        await asyncio.Event().wait()

    policy.before_reply = wait_for_ever
    playing = asyncio.create_task(player.play(request(episode("cancelled")), delivery=1))
    async with asyncio.timeout(20):
        await asked.wait()
    assert len(await live_sessions(env.address, "cancelled")) == 1
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert await live_sessions(env.address, "cancelled") == []
