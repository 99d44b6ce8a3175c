"""Turns a loop's configuration into one file for each service, under runs/<id>/config/.

What the loop implies comes first; the service's own block under `stack` is laid over it. Each service checks its file
when it starts and refuses what it does not know.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from webagent_cli.config import LoopConfig, PortsConfig
from webagent_cli.runs import Run

HOST = "127.0.0.1"


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `top`, block by block."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def service_settings(
    run: Run, config: LoopConfig, ports: PortsConfig, *, queued: bool = True
) -> dict[str, dict[str, Any]]:
    """The configuration of each service, by its name; without a queue, rollout and inference look for none."""

    def server(port: int) -> dict[str, Any]:
        return {"host": HOST, "port": port, "drain_seconds": config.stack.drain_seconds}

    queue = {"url": f"nats://{HOST}:{ports.nats}"} if queued else None
    payloads = {"uri": run.payloads.as_uri()}
    implied: dict[str, dict[str, Any]] = {
        "env": {
            "server": server(ports.env),
            "sessions": {"capacity": config.eval.concurrency},
            "state_directory": str(run.path / "browsers"),
        },
        "inference": {
            "server": server(ports.inference),
            "admin": server(ports.inference_admin),
            # One name however the ports change: the trainer waits for every replica that it has heard of.
            "replica": "local",
            "model": {"path": str(config.model.path.resolve())},
            "updates": {"staging": str(run.path / "staging")},
            "queue": queue,
        },
        "evaluator": {"server": server(ports.evaluator)},
        "rollout": {
            "server": server(ports.rollout),
            "env": {"target": f"{HOST}:{ports.env}"},
            "inference": {"target": f"{HOST}:{ports.inference}"},
            "evaluator": {"target": f"{HOST}:{ports.evaluator}"},
            "queue": queue,
            "payloads": payloads,
            "concurrency": config.eval.concurrency,
        },
        "trainer": {"server": server(ports.trainer), "queue": queue},
    }
    own = config.stack.model_dump(mode="json", exclude={"trainer": {"run"}})
    return {service: laid_over(settings, own[service]) for service, settings in implied.items()}


def trainer_run(run: Run, config: LoopConfig) -> dict[str, Any]:
    """The trainer's configuration of the run, as `StartRun` takes it."""
    bc, rl, cloned = config.bc, config.rl, config.variant != "r1-zero"
    implied: dict[str, Any] = {
        "run_directory": str(run.path),
        "model": str(config.model.path.resolve()),
        "seed": config.seed,
        "pause_between_phases": cloned,
        "payloads": {"uri": run.payloads.as_uri()},
        "deepspeed": config.deepspeed.model_dump(exclude={"ranks", "nodes"}),
        "bc": None,
        "rl": {
            "suite": config.tasks.suite,
            "tasks": list(config.tasks.ids),
            "seeds": rl.seeds.model_dump(),
            "held_out_seeds": config.eval.seeds.model_dump(),
            "agent": config.agent.model_dump(mode="json", exclude={"max_reply_tokens"}),
            "sampling": {
                "temperature": rl.temperature,
                "max_tokens": config.agent.max_reply_tokens,
                # What inference returns: of the distribution that was drawn from, whatever the temperature.
                "logprobs": "processed",
            },
            "optimizer": {"learning_rate": rl.learning_rate},
            **rl.model_dump(exclude={"seeds", "learning_rate", "temperature"}),
        },
    }
    if cloned:
        implied["bc"] = {
            "demonstrations": str(run.reasoned_demos if config.variant == "r1-cot" else run.demos),
            "optimizer": {"learning_rate": bc.learning_rate},
            **bc.model_dump(exclude={"learning_rate"}),
        }
    own = config.stack.trainer.get("run")
    return laid_over(implied, own) if isinstance(own, Mapping) else implied


def write_settings(run: Run, settings: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Writes each service's file."""
    written = []
    for service, values in settings.items():
        path = run.service_config(service)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(values), sort_keys=False))
        written.append(path)
    return written
