"""All methods from the same start on the same tasks, with as many episodes each, two seeds; and the three normalizers.

    python benchmarks/trainer/methods.py [--minutes 85] [--config configs/quick.yaml] [--seeds 0 1]
        [--runs runs/methods] [--output benchmarks/results/methods.json] [--normalizers]

Each cell is one `webagent train`; it is kept in --runs and never done twice, and one that was interrupted is resumed.
No new run begins after --minutes: the same command then goes on where it stopped. The table has held-out success of
the base model (prompting), after cloning (BC) and after the method, with 95 % intervals, pooled over seeds.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

METHODS = {
    "filtered-bc": ["rl.method={name: filtered-bc}"],
    "awr": ["rl.method={name: awr}"],
    "digirl": ["rl.method={name: digirl}"],
    "webrl": ["rl.method={name: webrl}"],
    "webagent-r1": [],
    "r1-zero": ["variant=r1-zero"],
}
NORMALIZERS = {name: [f"rl.normalizer={name}"] for name in ("turn-mean", "token-mean", "constant")}
PHASES = ("zero_shot", "bc", "rl")
_Z = 1.96


def interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval."""
    share, spread = successes / n, _Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * (share * (1 - share) / n + spread / (4 * n)) ** 0.5 / (1 + spread)
    return middle - half, middle + half


def train(name: str, settings: list[str], options: argparse.Namespace, seed: int) -> None:
    """One run, new or resumed."""
    command = [str(Path(sys.executable).parent / "webagent"), "train", str(options.config), "--run", name]
    command += ["--runs", str(options.runs), "--seed", str(seed)]
    for setting in settings:
        command += ["--set", setting]
    if (options.runs / name).exists():
        command.append("--resume")
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True)


def rows(cells: dict[str, list[str]], options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """A row for each method that has results."""
    for method in cells:
        results = []
        for seed in options.seeds:
            path = options.runs / f"{method}-{seed}" / "result.json"
            if path.is_file():
                results.append(json.loads(path.read_text()))
        row: dict[str, object] = {"method": method, "seeds": len(results)}
        for phase in PHASES:
            rates = [result["overall"][phase] for result in results if phase in result["overall"]]
            n = sum(rate["n"] for rate in rates)
            if n:
                successes = sum(rate["successes"] for rate in rates)
                low, high = interval(successes, n)
                row[phase] = {"rate": round(successes / n, 4), "low": round(low, 4), "high": round(high, 4), "n": n}
        row["episodes"] = sum(result["ledger"]["dispatched"] for result in results)
        row["minutes"] = round(sum(result["total_seconds"] for result in results) / 60, 1)
        yield row


def main() -> None:
    """Trains what is missing, then prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=85.0)
    parser.add_argument("--config", type=Path, default=Path("configs/quick.yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/methods.json"))
    parser.add_argument("--normalizers", action="store_true", help="the three normalizers instead of the methods")
    options = parser.parse_args()
    cells = NORMALIZERS if options.normalizers else METHODS
    end = time.monotonic() + 60 * options.minutes
    for seed in options.seeds:
        for method, settings in cells.items():
            name = f"{method}-{seed}"
            if not (options.runs / name / "result.json").is_file() and time.monotonic() < end:
                train(name, settings, options, seed)
            table = {"command": " ".join(sys.argv), "config": str(options.config), "rows": list(rows(cells, options))}
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(table, indent=2) + "\n")
    for row in rows(cells, options):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
