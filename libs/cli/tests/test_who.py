"""Who plays an evaluation: what is started for each, under which name, and what cannot be meant."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from webagent_cli.config import LoopConfig, PortsConfig, load_loop
from webagent_cli.episodes import Job
from webagent_cli.runs import Run
from webagent_cli.settings import service_settings
from webagent_cli.who import Endpoint, Who, who_of
from webagent_inference.config import InferenceConfig
from webagent_runtime.config import ConfigError

ROOT = Path(__file__).resolve().parents[3]
QUICK = ROOT / "configs" / "quick.yaml"
NOBODY: dict[str, Any] = {
    "run": None,
    "expert": False,
    "chance": False,
    "endpoint": None,
    "model": "",
    "key_file": None,
    "greedy": False,
}


@pytest.fixture
def config() -> LoopConfig:
    return load_loop(QUICK, {"eval.max_turns": 30, "eval.max_equal_actions": 5})


def inference_of(who: Who, config: LoopConfig, run: Run) -> InferenceConfig:
    settings = service_settings(run, who.served(config), PortsConfig(), queued="nats" in who.services())
    return InferenceConfig.model_validate(settings["inference"])


def test_an_endpoint_is_asked_in_place_of_a_model_of_our_own(config: LoopConfig, tmp_path: Path) -> None:
    who = Who(endpoint=Endpoint("https://host/v1", "some/model:1", tmp_path / "key"))
    inference = inference_of(who, config, Run(tmp_path))
    assert (inference.backend, inference.model.path) == ("openai", None)
    assert (inference.openai.base_url, inference.openai.model) == ("https://host/v1", "some/model:1")
    assert inference.openai.api_key_file == tmp_path / "key"
    assert not who.served(config).stack.serves_model
    player = who.player(Run(tmp_path), config)
    assert player.phase == "some-model-1_t1"
    assert player.spec(Job("click-button", 1)).WhichOneof("policy") == "sampled"


@pytest.mark.parametrize("policy", ["expert", "random"])
def test_who_needs_no_model_has_none_loaded(config: LoopConfig, tmp_path: Path, policy: Any) -> None:
    who = Who(policy=policy)
    assert inference_of(who, config, Run(tmp_path)).backend == "scripted"
    player = who.player(Run(tmp_path), config)
    assert player.phase == player.spec(Job("click-button", 1)).WhichOneof("policy") == policy


def test_the_model_itself_is_served_as_configured(config: LoopConfig, tmp_path: Path) -> None:
    assert Who().served(config) == config
    assert "nats" not in Who().services()
    assert "nats" in Who(run="a").services()


def test_evaluation_has_a_turn_budget_and_an_early_stop_of_its_own(config: LoopConfig, tmp_path: Path) -> None:
    agent = Who().player(Run(tmp_path), config).spec(Job("click-button", 1)).agent
    assert (agent.max_turns, agent.max_equal_actions, agent.max_unusable_replies) == (30, 5, 5)
    assert config.agent.max_turns < 30


@pytest.mark.parametrize(
    "given",
    [
        {"expert": True, "chance": True},
        {"expert": True, "endpoint": "https://host/v1"},
        {"run": "a", "endpoint": "https://host/v1"},
        {"model": "a"},
        {"key_file": Path("key")},
    ],
)
def test_only_one_plays(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        who_of(**NOBODY | given)


@contextmanager
def endpoint(reply: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": reply}}]}).encode())

        def log_message(self, *_: object) -> None:
            """Stays quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_endpoint_is_evaluated_once_and_set_beside_chance(tmp_path: Path) -> None:
    seeds = '{"seeds": {"first": 0, "count": 2}, "zero_shot_seeds": 1, "max_turns": 3, "max_equal_actions": 2}'
    common = ["--runs", str(tmp_path), "--set", 'tasks.ids=["click-button"]', "--set", f"eval={seeds}"]

    def evaluate(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "webagent"), "eval", str(QUICK), *common, *arguments]
        environment = {**os.environ, "COLUMNS": "160"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "overall" in evaluate("--random", "--name", "chance")
    with endpoint('do(action="Scroll Down")') as (url, asked):
        there = ("--endpoint", url, "--model", "far", "--name", "far")
        evaluate(*there)
        assert {each["model"] for each in asked} == {"far"}
        before = len(asked)
        # Two equal actions end each of the two episodes.
        assert before == 4
        evaluate(*there, "--compare", "chance")
        assert len(asked) == before
        assert "far far_t1 minus chance random" in (tmp_path / "far" / "eval-far_t1.md").read_text()
