"""The commands that start a run's services one by one: on one machine, or the trainer's ranks over several."""

from collections.abc import Iterator

from webagent_cli.config import LoopConfig

MASTER_PORT = 29500


def launch_commands(config: LoopConfig) -> Iterator[str]:
    """One line each, in the order in which they are started; the trainer's last, one for each machine."""
    yield "nats-server -js -sd nats/"
    for service in ("env", "inference", "evaluator", "rollout"):
        yield f"webagent-{service} --config config/{service}.yaml"
    engine = config.deepspeed
    if engine.ranks * engine.nodes == 1:
        yield "webagent-trainer --config config/trainer.yaml"
        return
    for node in range(engine.nodes):
        meeting = (
            "--standalone"
            if engine.nodes == 1
            else f"--nnodes {engine.nodes} --node-rank {node} --master-addr $NODE_0 --master-port {MASTER_PORT}"
        )
        yield f"torchrun {meeting} --nproc-per-node {engine.ranks} -m webagent_trainer --config config/trainer.yaml"
