"""All methods from the same start, on the same tasks, with as many episodes each, two seeds; and the three normalizers.

    python benchmarks/trainer/methods.py [methods | normalizers] [--minutes 90] [--config configs/quick.yaml]
        [--seeds 0 1] [--only NAME ...] [--set KEY=VALUE ...] [--runs runs/methods] [--output FILE.json] [--dry-run]

Each cell is one `webagent train`. WebAgent-R1's run clones first; the policy that it has then is where the others of
the same seed begin (`start_from`), and its evaluation is the table's row "bc". R1-Zero begins with the base model, and
R1-CoT clones demonstrations of its own, with a chain of thought. A cell is kept in --runs and never done twice; the two
studies share the run of WebAgent-R1, whose normalizer is turn-mean.

The command ends after --minutes: a run under way is then interrupted in order, and the same command goes on with it.
The table is written after each run: held-out success with Wilson's 95 % interval over the pages of all seeds, and the
difference to WebAgent-R1 on the same pages with its 95 % interval.
"""

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent.trajectory.v1 import trajectory_pb2
from webagent_cli.config import load_loop, parse_settings
from webagent_cli.episodes import final_outcomes, succeeded
from webagent_cli.journal import read_episodes
from webagent_cli.offers import check_offers
from webagent_cli.record import RunRecord
from webagent_cli.runs import Run

BASE = "webagent-r1"
# The untrained model's evaluation belongs to the base run.
_BEGUN = ["variant=r1-zero", "eval.zero_shot_seeds=1"]
_THINKING = ["agent.thinking=true", "agent.max_reply_tokens=96"]
_Z = 1.96
_END_SECONDS = 120


@dataclass(frozen=True)
class Cell:
    """What one method changes. `begun`: it starts from the base run's cloned policy."""

    settings: tuple[str, ...] = ()
    begun: bool = True


STUDIES = {
    "methods": {
        BASE: Cell(("eval.zero_shot_seeds=50",), begun=False),
        **{name: Cell((f"rl.method={{name: {name}}}",)) for name in ("filtered-bc", "awr", "digirl", "webrl")},
        "r1-zero": Cell((*_BEGUN,), begun=False),
        "r1-cot": Cell(("variant=r1-cot", *_THINKING, "eval.zero_shot_seeds=1"), begun=False),
    },
    "normalizers": {
        BASE: Cell(("eval.zero_shot_seeds=50",), begun=False),
        **{name: Cell((f"rl.normalizer={name}",)) for name in ("token-mean", "constant")},
    },
}

Pages = dict[tuple[int, str, int], bool]


def settings_of(cell: Cell, options: argparse.Namespace, seed: int) -> list[str]:
    """What a cell's run changes of the configuration."""
    if not cell.begun:
        return [*cell.settings, *options.set]
    base = Run(options.runs / f"{BASE}-{seed}")
    version = RunRecord.read(base.record).versions.get("bc", 0)
    start = (base.path / "policies" / str(version)).resolve()
    return [*_BEGUN, f"stack.trainer.run.start_from={start}", *cell.settings, *options.set]


def command(name: str, cell: Cell, options: argparse.Namespace, seed: int) -> list[str]:
    """One run, new or resumed."""
    made = [str(Path(sys.executable).parent / "webagent"), "train", str(options.config), "--run", name]
    made += ["--runs", str(options.runs), "--seed", str(seed)]
    for setting in settings_of(cell, options, seed):
        made += ["--set", setting]
    return [*made, "--resume"] if (options.runs / name).exists() else made


def train(command: list[str], end: float) -> bool:
    """Runs it; False: the time was up first, and it was interrupted in order."""
    print(" ".join(command), flush=True)
    process = subprocess.Popen(command)
    try:
        if process.wait(max(end - time.monotonic(), 1.0)):
            raise SystemExit(f"it ended with {process.returncode}; the same command tries again")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # Its keeper ends what it had started.
            process.kill()
            process.wait()
        return False
    return True


def pages(runs: Path, method: str, phase: str, seeds: list[int]) -> Pages:
    """Of each training seed, task and page: whether the policy succeeded there."""
    found: Pages = {}
    for seed in seeds:
        run = Run(runs / f"{method}-{seed}")
        if not run.result.is_file():
            continue
        scored = (
            one for one in read_episodes(run.episodes(phase)) if one.status == trajectory_pb2.EPISODE_STATUS_SCORED
        )
        found |= {(seed, *key): succeeded(one) for key, one in final_outcomes(scored).items()}
    return found


def row(name: str, found: Pages, base: Pages) -> dict[str, Any]:
    """A line of the table."""
    n, successes = len(found), sum(found.values())
    both = [found[page] - base[page] for page in found if page in base]
    low, high = interval(successes, n)
    line = {"method": name, "success": successes / n, "low": low, "high": high, "n": n}
    if both and found is not base:
        mean = sum(both) / len(both)
        spread = math.sqrt(sum((one - mean) ** 2 for one in both) / max(len(both) - 1, 1) / len(both))
        line |= {"minus_r1": mean, "minus_r1_low": mean - _Z * spread, "minus_r1_high": mean + _Z * spread}
    by_seed = {
        seed: [good for (of, *_), good in found.items() if of == seed] for seed in sorted({key[0] for key in found})
    }
    line["by_seed"] = {str(seed): sum(good) / len(good) for seed, good in by_seed.items()}
    return line


def interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval."""
    share, spread = successes / n, _Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * (share * (1 - share) / n + spread / (4 * n)) ** 0.5 / (1 + spread)
    return middle - half, middle + half


def table(cells: Mapping[str, Cell], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each method that has results."""
    base = pages(options.runs, BASE, "rl", options.seeds)
    # Whatever the seed of training, the untrained model says the same.
    for name, phase, seeds in (("prompting", "zero_shot", options.seeds[:1]), ("bc", "bc", options.seeds)):
        found = pages(options.runs, BASE, phase, seeds)
        if found:
            yield row(name, found, base)
    for name in cells:
        found = base if name == BASE else pages(options.runs, name, "rl", options.seeds)
        if found:
            yield row(name, found, base) | spent(options.runs, name, options.seeds)


def spent(runs: Path, method: str, seeds: list[int]) -> dict[str, Any]:
    """What a method's runs took."""
    paths = [runs / f"{method}-{seed}" / "result.json" for seed in seeds]
    results = [json.loads(path.read_text()) for path in paths if path.is_file()]
    return {
        "episodes": [result["ledger"]["dispatched"] for result in results],
        "minutes": [round(result["total_seconds"] / 60, 1) for result in results],
    }


def write(cells: Mapping[str, Cell], options: argparse.Namespace) -> None:
    """Writes the table as it is now."""
    lines = [{key: _rounded(value) for key, value in line.items()} for line in table(cells, options)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    made = {"command": " ".join(sys.argv), "config": str(options.config), "rows": lines}
    options.output.write_text(json.dumps(made, indent=2) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def plan(cells: Mapping[str, Cell], options: argparse.Namespace) -> None:
    """Checks every cell's configuration and prints its command."""
    for seed in options.seeds:
        for name, cell in cells.items():
            settings = parse_settings(settings_of(cell, options, seed))
            config = load_loop(options.config, settings)
            check_offers(config)
            done = (options.runs / f"{name}-{seed}" / "result.json").is_file()
            episodes = config.rl.iterations * config.rl.groups * config.rl.group_size
            print(f"{name}-{seed}: {'done' if done else 'to do'}, {episodes} episodes")
            print("  " + " ".join(command(f"{name}-{seed}", cell, options, seed)))


def main() -> None:
    """Trains what is missing while there is time, and writes the table after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", choices=STUDIES, default="methods")
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--config", type=Path, default=Path("configs/quick.yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", help="of the study's methods; the base run is always done")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, for all cells; may be repeated")
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    parser.add_argument("--output", type=Path, help="else benchmarks/results/STUDY.json")
    parser.add_argument("--dry-run", action="store_true", help="check all configurations, print the commands")
    options = parser.parse_args()
    cells = STUDIES[options.study]
    if options.only:
        unknown = set(options.only) - set(cells)
        if unknown:
            parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(cells)}")
        cells = {name: cell for name, cell in cells.items() if name in {BASE, *options.only}}
    options.output = options.output or Path("benchmarks/results") / f"{options.study}.json"
    if options.dry_run:
        plan(cells, options)
        return
    end = time.monotonic() + 60 * options.minutes - _END_SECONDS
    for seed in options.seeds:
        for name, cell in cells.items():
            if (options.runs / f"{name}-{seed}" / "result.json").is_file():
                continue
            if time.monotonic() >= end or not train(command(f"{name}-{seed}", cell, options, seed), end):
                write(cells, options)
                print("time is up; the same command goes on", flush=True)
                return
            write(cells, options)
    write(cells, options)
    for line in json.loads(options.output.read_text())["rows"]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
