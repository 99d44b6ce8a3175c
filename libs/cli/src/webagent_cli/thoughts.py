"""r1-cot: the demonstrations again, with a chain of thought before each action."""

from collections import Counter

from webagent.trajectory.v1.trajectory_pb2 import Trajectory
from webagent_rollout.augment import augment
from webagent_rollout.clients import InferenceClient
from webagent_rollout.config import LimitsConfig, TargetConfig
from webagent_rollout.thoughts import Endpoint, EndpointError, Template, Thinker
from webagent_runtime import delimited
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
    settings = config.thoughts
    thinker: Thinker = Endpoint(settings.endpoint, model=settings.model) if settings.endpoint else Template()
    partial = run.reasoned_demos.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    client = InferenceClient(TargetConfig(target=inference), LimitsConfig(), f"{run.id}-thoughts", training=False)
    store = PayloadStore(PayloadConfig(uri=run.payloads.as_uri()))
    left_out: Counter[str] = Counter()
    written = 0
    try:
        async for made in augment(delimited.read(run.demos, Trajectory), thinker, client, store, left_out):
            delimited.append(partial, made)
            written += 1
    except EndpointError as error:
        raise RunError(f"thoughts.endpoint: {error}") from error
    finally:
        await client.close()
    if not written:
        raise RunError(f"no demonstration could be given a chain of thought: {dict(left_out)}")
    partial.replace(run.reasoned_demos)
    display.say(f"{written} demonstrations with a chain of thought: {run.reasoned_demos}")
