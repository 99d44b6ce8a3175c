"""The `webagent` command. Each subcommand imports what it needs when it is called, so that `--help` is instant."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

app = typer.Typer(
    name="webagent",
    help="Trains language-model web agents end to end: demonstrations, behaviour cloning, multi-turn GRPO.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

queue_commands = typer.Typer(help="The queue between the services.", no_args_is_help=True)
app.add_typer(queue_commands, name="queue")

QUICK = Path("configs/quick.yaml")
RUNS = Path("runs")

ConfigArgument = Annotated[Path, typer.Argument(help="The loop's configuration.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="The loop's configuration.")]
RunArgument = Annotated[str, typer.Argument(help="A run's name or path, or `latest`.")]
RunsOption = Annotated[Path, typer.Option("--runs", help="Where runs are kept.")]
GreedyOption = Annotated[bool, typer.Option("--greedy", help="Temperature 0 instead of the configuration's.")]
EndpointOption = Annotated[str | None, typer.Option(help="Ask this OpenAI-compatible API, such as https://host/v1.")]
ModelOption = Annotated[str, typer.Option(help="The model's name at the endpoint; else the first one there.")]
KeyOption = Annotated[Path | None, typer.Option("--key-file", help="File with the endpoint's key.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, laid over the file.")]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def _run(command: Callable[[], None]) -> None:
    """Runs a command; what a person can mend becomes one line and exit code 2, Ctrl-C becomes 130."""
    from webagent_runtime.config import ConfigError  # noqa: PLC0415
    from webagent_runtime.errors import ServiceError  # noqa: PLC0415

    from webagent_cli.errors import RunError  # noqa: PLC0415

    # A shell's background job inherits SIGINT ignored, and then neither of the others would end it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        command()
    except (ConfigError, ServiceError, RunError) as error:
        sys.stderr.write(f"webagent: {error}\n")
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from error
    except KeyboardInterrupt:
        sys.stderr.write("webagent: interrupted; everything it started has ended\n")
        raise typer.Exit(130) from None


@app.callback()
def _before() -> None:
    """Trains language-model web agents end to end: demonstrations, behaviour cloning, multi-turn GRPO."""
    # gRPC would tell of each connection that a restarted service drops; it reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


@app.command()
def up(config: ConfigArgument = QUICK, runs: RunsOption = RUNS, settings: SetOption = None) -> None:
    """Starts the local stack on its default ports and stays until Ctrl-C."""
    from webagent_cli.up import up as command  # noqa: PLC0415

    _run(lambda: command(config, runs=runs, settings=settings or []))


@app.command()
def train(
    config: ConfigArgument = QUICK,
    seed: Annotated[int | None, typer.Option(help="Seed of training; held-out seeds stay.")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run named by --run (default: latest).")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Resolve, check and print everything; start nothing.")
    ] = False,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Trains a policy: zero-shot evaluation, demonstrations, cloning, RL, and an evaluation after each."""
    from webagent_cli.train import train as command  # noqa: PLC0415

    overrides = list(settings or []) + ([f"seed={seed}"] if seed is not None else [])
    _run(lambda: command(config, runs=runs, name=run, resume=resume, dry_run=dry_run, settings=overrides))


@app.command(name="eval")
def evaluate(
    config: ConfigArgument = QUICK,
    run: Annotated[str | None, typer.Option(help="Evaluate this run's newest policy; else the base model.")] = None,
    endpoint: EndpointOption = None,
    model: ModelOption = "",
    key_file: KeyOption = None,
    expert: Annotated[bool, typer.Option("--expert", help="Let the scripted experts play.")] = False,
    chance: Annotated[bool, typer.Option("--random", help="Let chance play.")] = False,
    greedy: GreedyOption = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the evaluation; one that exists goes on where it stopped.")
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="RUN or RUN:PHASE, set beside it and paired with it; may be repeated.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Add the paper's published numbers, marked as such.")
    ] = False,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Plays the held-out seeds that are not SCORED yet; prints and writes success rates with intervals."""

    def command() -> None:
        from webagent_cli.standalone import evaluation  # noqa: PLC0415
        from webagent_cli.who import who_of  # noqa: PLC0415

        who = who_of(
            run=run,
            expert=expert,
            chance=chance,
            endpoint=endpoint,
            model=model,
            key_file=key_file,
            greedy=greedy,
        )
        evaluation(
            config, who, runs=runs, name=name, compare=compare or [], published=published, settings=settings or []
        )

    _run(command)


@app.command()
def study(
    kind: Annotated[str, typer.Argument(help="turns, thinking or samples.")],
    config: ConfigOption = QUICK,
    run: Annotated[str | None, typer.Option(help="Of this run's newest policy; else of the base model.")] = None,
    endpoint: EndpointOption = None,
    model: ModelOption = "",
    key_file: KeyOption = None,
    greedy: GreedyOption = False,
    name: Annotated[str | None, typer.Option(help="Name of the study; one that exists goes on.")] = None,
    budgets: Annotated[str, typer.Option(help="turns: the budgets, with commas between them.")] = "5,10,15,20,25,30",
    samples: Annotated[int, typer.Option(min=1, max=256, help="samples: how many of each page.")] = 4,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Evaluates with one thing varied: the turn budget, thinking, or the number of samples; table and plot."""

    def command() -> None:
        from webagent_cli.study import budgets_of, study  # noqa: PLC0415
        from webagent_cli.who import who_of  # noqa: PLC0415

        who = who_of(
            run=run,
            expert=False,
            chance=False,
            endpoint=endpoint,
            model=model,
            key_file=key_file,
            greedy=greedy,
        )
        study(
            kind,
            config,
            who,
            runs=runs,
            name=name,
            budgets=budgets_of(budgets),
            samples=samples,
            settings=settings or [],
        )

    _run(command)


@app.command()
def rescore(
    run: RunArgument = "latest",
    dialect: Annotated[
        str | None, typer.Option(help="Of WebArena's rules: webarena, vab_lite or verified; else each rule's own.")
    ] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Rightly, or as the published evaluators decide.")
    ] = None,
    unanswered_is_na: Annotated[
        bool | None,
        typer.Option("--unanswered-is-na/--no-unanswered-is-na", help='No answer as "N/A", or as no answer.'),
    ] = None,
    phase: Annotated[str | None, typer.Option(help="Evaluation of the run; else all of them.")] = None,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Judges a run's evaluations again from their evidence, with no browser, and says which verdicts change."""
    from webagent_cli.rescoring import Manner  # noqa: PLC0415
    from webagent_cli.rescoring import rescore as command  # noqa: PLC0415

    manner = Manner(dialect, strict, unanswered_is_na)
    _run(lambda: command(run, runs=runs, phase=phase, manner=manner, settings=settings or []))


@app.command()
def play(
    task: Annotated[str, typer.Argument(help="Task of the configuration's suite, such as click-button.")],
    config: ConfigOption = QUICK,
    run: Annotated[str | None, typer.Option(help="Play with this run's newest policy; else the base model.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the page; else a random one.")] = None,
    expert: Annotated[bool, typer.Option("--expert", help="Let the scripted expert act.")] = False,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Watches one episode: instruction, page, reply, result, verdict; keeps the screenshots."""
    from webagent_cli.play import play as command  # noqa: PLC0415

    _run(lambda: command(task, path=config, runs=runs, run=run, seed=seed, expert=expert, settings=settings or []))


@app.command()
def demos(
    config: ConfigArgument = QUICK,
    run: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    runs: RunsOption = RUNS,
    settings: SetOption = None,
) -> None:
    """Has the scripted experts play and keeps the successes as trajectories."""
    from webagent_cli.standalone import demonstrations as command  # noqa: PLC0415

    _run(lambda: command(config, runs=runs, run=run, settings=settings or []))


@app.command()
def ledger(
    run: RunArgument = "latest",
    dead: Annotated[bool, typer.Option("--dead", help="List the run's dead letters instead.")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="Put the dead letters back on their streams.")] = False,
    queue: Annotated[str | None, typer.Option(help="Queue of the dead letters; else the run's own.")] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Prints how every training episode ended; the counts add up."""
    from webagent_cli.dead import dead_letters  # noqa: PLC0415
    from webagent_cli.ledger import ledger as command  # noqa: PLC0415

    if dead or replay:
        _run(lambda: dead_letters(run, runs=runs, url=queue, replay=replay))
    else:
        _run(lambda: command(run, runs=runs))


@queue_commands.command()
def provision(
    config: Annotated[Path | None, typer.Option("--config", help="File with the section queue.")] = None,
    url: Annotated[str | None, typer.Option(help="Server, such as nats://host:4222; lies over the file.")] = None,
    settings: SetOption = None,
) -> None:
    """Makes the queue's streams, consumers and bucket, or updates them; waits for a server that is not there yet."""
    from webagent_runtime.provision import main as command  # noqa: PLC0415

    given = [*([f"queue.url={url}"] if url else []), *(settings or [])]
    named = ["--config", str(config)] if config else []
    command([*named, *(f"--set={setting}" for setting in given)])


@app.command()
def report(run: RunArgument = "latest", runs: RunsOption = RUNS) -> None:
    """Writes a run's report.html."""
    from webagent_cli.report import report as command  # noqa: PLC0415

    _run(lambda: command(run, runs=runs))


@app.command()
def doctor(config: ConfigArgument = QUICK, settings: SetOption = None) -> None:
    """Says what this machine lacks for a configuration, and how to get it."""
    from webagent_cli.doctor import doctor as command  # noqa: PLC0415

    _run(lambda: command(config, settings=settings or []))


if __name__ == "__main__":
    app()
