"""What is installed from the locks alone works: services by themselves, the contracts with old and new protobuf."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from service_process import running_service

ROOT = Path(__file__).parents[2]
IMPORT_ALL = (
    "import importlib, pathlib, webagent\n"
    "(root,) = webagent.__path__\n"
    "paths = [path.relative_to(root).with_suffix('') for path in pathlib.Path(root).rglob('*_pb2*.py')]\n"
    "[importlib.import_module('.'.join(['webagent', *path.parts])) for path in paths]\n"
    "assert len(paths) >= 16, paths"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of the packages, built from copies of what git tracks."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    tracked = run("git", "-C", ROOT, "ls-files", "proto/python", "libs/runtime", "services").splitlines()
    for name in tracked:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    packages = ["proto/python", "libs/runtime", "services/env", "services/evaluator", "services/rollout"]
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", built]
    run(*pip, *(source / package for package in packages))
    return built


def make_venv(place: Path, *requirements: str | Path) -> Path:
    run(sys.executable, "-m", "venv", place)
    run(place / "bin" / "pip", "install", "-q", "--no-deps", *requirements)
    return place / "bin"


@pytest.mark.parametrize("name", ["env", "evaluator", "rollout"])
def test_a_service_runs_from_its_lock_alone(name: str, wheels: Path, tmp_path: Path) -> None:
    packages = [*wheels.glob("webagent_proto*"), *wheels.glob("webagent_runtime*"), *wheels.glob(f"webagent_{name}*")]
    programs = make_venv(tmp_path / "venv", "-r", ROOT / "services" / name / "requirements.lock", *packages)
    scratch = (tmp_path / "scratch").absolute()
    needs: dict[str, dict[str, object]] = {
        "env": {"state_directory": scratch},
        "rollout": {"payloads.uri": scratch.as_uri()},
    }
    with running_service(name, tmp_path / "log", needs.get(name, {}), programs=programs):
        pass
    if name == "env":
        missing = "import importlib.util as u; assert not [m for m in ('nats', 'torch') if u.find_spec(m)]"
        run(programs / "python", "-c", missing)


@pytest.mark.parametrize(("protobuf", "grpcio"), [("6.33.5", "1.81.1"), ("7.36.2", "1.85.3")], ids=["oldest", "newest"])
def test_the_contracts_import_with_the_oldest_and_newest_protobuf(
    protobuf: str, grpcio: str, wheels: Path, tmp_path: Path
) -> None:
    needs = [f"protobuf=={protobuf}", f"grpcio=={grpcio}", "typing_extensions"]
    programs = make_venv(tmp_path / "venv", *needs, *wheels.glob("webagent_proto*"))
    run(programs / "python", "-W", "error", "-c", IMPORT_ALL)
