"""For tests of the trainer: a tiny model, and a stand-in for rollout and inference that samples from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
import yaml
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from webagent.evaluator.v1 import evaluator_pb2
from webagent.inference.v1 import inference_pb2
from webagent.trajectory.v1 import policy_pb2, trajectory_pb2
from webagent_runtime import delimited
from webagent_runtime.config import QueueConfig
from webagent_runtime.queue import Queue

from webagent_trainer.chance import seeded

IDENTITY = inference_pb2.ModelIdentity(model_id="tiny", tokenizer_hash="aa" * 32, template_hash="bb" * 32)
VOCABULARY = 64
GOOD = 7
# What a killed trainer held is delivered again after this long.
ACK_SECONDS = 2.0
_REPLY_TOKENS = 3


def write_tiny_model(directory: Path) -> Path:
    """A Llama of two layers with random weights, in bfloat16."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    return directory


def make_turn(prompt: list[int], reply: list[int], logprobs: list[float], version: int = 0) -> trajectory_pb2.Turn:
    """A turn as the tiny model's sampler would report it."""
    return trajectory_pb2.Turn(
        prompt_token_ids=prompt,
        reply_token_ids=reply,
        logprobs=logprobs,
        logprob_kind=inference_pb2.LOGPROB_KIND_RAW,
        spans=[inference_pb2.WeightsSpan(start=0, end=len(reply), weights_version=version)] if reply else [],
        sampling=inference_pb2.SamplingSettings(temperature=1.0, max_tokens=8, top_p=1.0),
        model=IDENTITY,
    )


def make_demonstration(prompt: list[int], reply: list[int], *, success: bool = True) -> trajectory_pb2.Trajectory:
    """An expert's episode of one turn."""
    outcome = evaluator_pb2.OUTCOME_SUCCESS if success else evaluator_pb2.OUTCOME_FAILURE
    return trajectory_pb2.Trajectory(
        status=trajectory_pb2.EPISODE_STATUS_SCORED,
        reward=float(success),
        verdict=evaluator_pb2.Verdict(outcome=outcome),
        turns=[make_turn(prompt, reply, [])],
    )


def write_stored(path: Path) -> Path:
    """A file of three groups of four episodes that another run's policy sampled; half of each group succeeded."""
    for number in range(12):
        good = number % 2 == 0
        prompt = prompt_of("a", number // 4)
        turn = make_turn(prompt, [GOOD if good else 9, 5], [-2.0, -2.0], version=3)
        made = trajectory_pb2.Trajectory(
            run_id="another",
            group_id=f"g{number // 4}",
            status=trajectory_pb2.EPISODE_STATUS_SCORED,
            reward=float(good),
            turns=[turn],
        )
        made.episode.episode_id, made.episode.task.task_id = f"e{number}", "a"
        delimited.append(path, made)
    return path


class Player:
    """Serves versions as a replica would and plays requests as rollout would, until it is closed."""

    def __init__(self, queue: Queue, base_model: Path, name: str = "replica") -> None:
        self._queue = queue
        self._name = name
        self._model = _read_model(base_model)
        self._changed = asyncio.Condition()
        self.version = 0
        self.played = 0
        # Of a reply, its reward; None: the episode is INVALID.
        self.judge: Callable[[list[int]], float | None] = lambda reply: float(GOOD in reply)
        # Every so many episodes nothing is ever heard of one.
        self.silent_every = 0
        # Why no version is taken over.
        self.refuses = ""

    async def serve(self) -> None:
        """Takes over each new version and says so."""
        await self._say()
        async for entry in self._queue.watch_versions():
            if self.refuses:
                await self._say(failed=entry.version)
                continue
            self._model = _read_model(Path(urlparse(entry.uri).path))
            async with self._changed:
                self.version = entry.version
                self._changed.notify_all()
            await self._say()

    async def play(self) -> None:
        """Plays one request after the other."""
        requests = self._queue.requests()
        while True:
            delivery = await requests.next(5.0)
            if delivery is None:
                continue
            minimum = delivery.message.episode.sampled.min_weights_version
            async with self._changed:
                await self._changed.wait_for(lambda: self.version >= minimum)  # noqa: B023  awaited here
            self.played += 1
            if not self.silent_every or self.played % self.silent_every:
                await self._queue.publish_trajectory(self._episode(delivery.message))
            await delivery.ack()

    async def _say(self, failed: int = 0) -> None:
        error = self.refuses if failed else ""
        status = policy_pb2.ServingStatus(replica=self._name, version=self.version, failed_version=failed, error=error)
        status.updated_at.GetCurrentTime()
        await self._queue.put_serving(status)

    def _episode(self, request: trajectory_pb2.RolloutRequest) -> trajectory_pb2.Trajectory:
        prompt = prompt_of(request.episode.task.task_id, request.episode.seed)
        reply, logprobs = self._sample(prompt)
        trajectory = trajectory_pb2.Trajectory(
            run_id=request.run_id,
            group_id=request.group_id,
            episode=request.episode,
            turns=[make_turn(prompt, reply, logprobs, self.version)],
        )
        reward = self.judge(reply)
        if reward is None:
            trajectory.status, trajectory.reason = trajectory_pb2.EPISODE_STATUS_INVALID, "BROWSER_CRASHED"
        else:
            trajectory.status, trajectory.reward = trajectory_pb2.EPISODE_STATUS_SCORED, reward
        return trajectory

    def _sample(self, prompt: list[int]) -> tuple[list[int], list[float]]:
        tokens = list(prompt)
        logprobs: list[float] = []
        with torch.no_grad():
            for _ in range(_REPLY_TOKENS):
                scores = self._model(torch.tensor([tokens])).logits[0, -1].float().log_softmax(-1)
                token = int(torch.multinomial(scores.exp(), 1))
                tokens.append(token)
                logprobs.append(float(scores[token]))
        return tokens[len(prompt) :], logprobs


def prompt_of(task: str, seed: int) -> list[int]:
    """The only prompt of an episode."""
    chance = seeded(task, seed)
    return [1, *(3 + ord(letter) % 8 for letter in task), *(chance.randrange(3, VOCABULARY) for _ in range(6))]


def _read_model(directory: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    return model.eval()


@asynccontextmanager
async def playing(url: str, base_model: Path) -> AsyncIterator[Player]:
    """A player at work on the queue at `url`."""
    queue = await Queue.connect(QueueConfig(url=url, ack_wait_seconds=ACK_SECONDS), name="player")
    await queue.ensure()
    player = Player(queue, base_model)
    tasks = [asyncio.create_task(player.serve()), asyncio.create_task(player.play())]
    try:
        yield player
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await queue.close()


@asynccontextmanager
async def trainer_process(config: Mapping[str, Any], directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A trainer as its user starts it, its output in trainer.log; it has ended when the block is left."""
    path = directory / "trainer.yaml"
    path.write_text(yaml.safe_dump(dict(config)))
    with (directory / "trainer.log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "webagent_trainer", "--config", str(path), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
