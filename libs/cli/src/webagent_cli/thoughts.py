"""r1-cot: the demonstrations again, with a chain of thought before each action."""

from collections import Counter

from webagent.trajectory.v1.trajectory_pb2 import Trajectory
from webagent_rollout.augment import augment
from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.file_command import write_all
from webagent_rollout.thoughts import thinker_of
from webagent_runtime import delimited
from webagent_runtime.chat import ChatError
from webagent_runtime.config import PayloadConfig
from webagent_runtime.payloads import PayloadStore

from webagent_cli.config import LoopConfig
from webagent_cli.errors import RunError
from webagent_cli.progress import Display
from webagent_cli.runs import Run


async def add_thoughts(run: Run, config: LoopConfig, inference: str, display: Display) -> None:
    """Writes the run's reasoned demonstrations, unless an earlier start of the run did."""
    if run.reasoned_demos.is_file():
        return
    thinker = thinker_of(config.thoughts.endpoint, model=config.thoughts.model)
    partial = run.reasoned_demos.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    client = InferenceClient(TargetConfig(target=inference), LimitsConfig(), f"{run.id}-thoughts", training=False)
    store = PayloadStore(PayloadConfig(uri=run.payloads.as_uri()))
    left_out: Counter[str] = Counter()
    try:
        made = augment(delimited.read(run.demos, Trajectory), thinker, client, store, left_out)
        written = await write_all(made, partial)
    except ChatError as error:
        raise RunError(f"thoughts.endpoint: {error}") from error
    finally:
        await client.close()
    if not written:
        raise RunError(f"no demonstration could be given a chain of thought: {dict(left_out)}")
    partial.replace(run.reasoned_demos)
    display.say(f"{written} demonstrations with a chain of thought: {run.reasoned_demos}")
