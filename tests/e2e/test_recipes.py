"""The paper-scale recipes train: their own configuration path, on a model of two layers of the same family."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from webagent_cli.config import load_loop
from webagent_cli.runs import Run
from webagent_cli.settings import laid_over, trainer_run
from webagent_runtime import delimited
from webagent_runtime.config import PayloadConfig, QueueConfig, validate
from webagent_runtime.payloads import PayloadStore
from webagent_runtime.queue import Queue
from webagent_runtime.testing import nats_server
from webagent_trainer.board import Board
from webagent_trainer.books import open_books
from webagent_trainer.config import RunConfig
from webagent_trainer.crew import Crew, join
from webagent_trainer.exchange import Exchange
from webagent_trainer.intake import Intake
from webagent_trainer.phases import train
from webagent_trainer.testing import GOOD, VOCABULARY, make_demonstration, playing, prompt_of

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}
FAMILIES = {
    "webarena-lite-qwen2.5-3b": (Qwen2Config, Qwen2ForCausalLM),
    "webarena-lite-llama3.1-8b": (LlamaConfig, LlamaForCausalLM),
}
# What a test on two cores cannot do, and nothing else: GPUs' offload, the length of the run, the size of a batch.
SMALLER: dict[str, Any] = {
    "pause_between_phases": False,
    "deepspeed": {"offload_optimizer": False, "threads": 1},
    "rl": {"iterations": 2, "groups": 2, "sampling": {"max_tokens": 3}, "deadline_seconds": 120},
}


def two_layers(recipe: str, directory: Path) -> Path:
    torch.manual_seed(0)
    config, model = FAMILIES[recipe]
    model(config(**SHAPE)).to(torch.bfloat16).save_pretrained(directory)
    return directory


def demonstrations(path: Path, tasks: tuple[str, ...]) -> Path:
    for seed, task in enumerate(tasks):
        delimited.append(path, make_demonstration(prompt_of(task, seed), [GOOD, GOOD, 9]))
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", FAMILIES)
async def test_a_recipe_trains_a_model_of_two_layers(recipe: str, tmp_path: Path) -> None:
    model = two_layers(recipe, tmp_path / "model")
    loop = load_loop(ROOT / "configs" / f"{recipe}.yaml", {"model.path": str(model)})
    run = Run(tmp_path / "run")
    values = laid_over(trainer_run(run, loop), SMALLER)
    demonstrations(run.path.parent / "demos", loop.tasks.ids)
    values["bc"]["demonstrations"] = str(tmp_path / "demos")
    config = validate(RunConfig, values, source=recipe)
    assert (config.deepspeed.zero_stage, config.deepspeed.gradient_checkpointing) == (3, True)
    assert config.deepspeed.pack_tokens == 16384
    join(60)
    with nats_server() as nats:
        async with playing(nats.url, model) as player:
            rewards = iter([1.0, 0.0, 0.0] * 1000)
            player.judge = lambda reply: next(rewards)
            lines = await do(config, nats.url)
    assert [line["phase"] for line in lines][-2:] == ["rl", "rl"]
    # The player computes in its own arithmetic; the paper's loss has its ratio all the same.
    assert all(abs(line["ratio_mean"] - 1) < 0.05 for line in lines if "ratio_mean" in line and line["staleness"] == 0)
    assert player.version == lines[-1]["version"] > 1


async def do(config: RunConfig, url: str) -> list[dict[str, Any]]:
    queue = await Queue.connect(QueueConfig(url=url), name="test")
    await queue.ensure()
    await queue.ensure_run(config.run_directory.name)
    board = Board(config.run_directory.name)
    books = open_books(config, board)
    assert books is not None
    payloads = PayloadStore(PayloadConfig(uri=(config.run_directory / "payloads").as_uri()))
    stop = asyncio.Event()
    intake = asyncio.create_task(Intake(queue, payloads, config.run_directory.name, books=books).run(stop))
    exchange = Exchange(asyncio.get_running_loop(), queue)
    await asyncio.to_thread(train, config, crew=Crew(), exchange=exchange, board=board, books=books)
    stop.set()
    await intake
    await queue.close()
    return [json.loads(line) for line in (config.run_directory / "metrics.jsonl").read_text().splitlines()]
