"""What is installed from the locks alone works: services by themselves, the contracts with old and new protobuf."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from service_process import SERVICES, running_service
from webagent_runtime.testing import nats_server

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct"
IMPORT_ALL = (
    "import importlib, pathlib, webagent\n"
    "(root,) = webagent.__path__\n"
    "paths = [path.relative_to(root).with_suffix('') for path in pathlib.Path(root).rglob('*_pb2*.py')]\n"
    "[importlib.import_module('.'.join(['webagent', *path.parts])) for path in paths]\n"
    "assert len(paths) >= 16, paths"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*command: str | Path) -> str:
    environment = {**os.environ, "PIP_OPTIONS": "-q"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an image is built from: copies of what git tracks."""
    source = tmp_path_factory.mktemp("source")
    kept = ["proto/python", "libs/runtime", "services", "scripts/install.sh"]
    for name in run("git", "-C", ROOT, "ls-files", *kept).splitlines():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return source


def install(source: Path, venv: Path, lock: Path | None, *packages: str) -> Path:
    """A clean environment, filled as an image is."""
    run(sys.executable, "-m", "venv", venv)
    if lock is not None:
        run(source / "scripts" / "install.sh", "locked", venv, lock)
    run(source / "scripts" / "install.sh", "packages", venv, *(source / package for package in packages))
    return venv / "bin"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_runs_from_its_lock_alone(name: str, source: Path, tmp_path: Path) -> None:
    lock = source / "services" / name / "requirements.lock"
    programs = install(source, tmp_path / "venv", lock, "proto/python", "libs/runtime", f"services/{name}")
    scratch = (tmp_path / "scratch").absolute()
    with nats_server() as nats:
        needs: dict[str, dict[str, object]] = {
            "env": {"state_directory": scratch},
            "inference": {"model.path": MODEL, "backend": "transformers", "admin.port": 0, "updates.staging": scratch},
            "rollout": {"payloads.uri": scratch.as_uri()},
            "trainer": {"queue.url": nats.url},
        }
        with running_service(name, tmp_path / "log", needs.get(name, {}), programs=programs):
            pass
    if name == "env":
        missing = "import importlib.util as u; assert not [m for m in ('nats', 'torch') if u.find_spec(m)]"
        run(programs / "python", "-c", missing)


@pytest.mark.parametrize(("protobuf", "grpcio"), [("6.33.5", "1.81.1"), ("7.36.2", "1.85.3")], ids=["oldest", "newest"])
def test_the_contracts_import_with_the_oldest_and_newest_protobuf(
    protobuf: str, grpcio: str, source: Path, tmp_path: Path
) -> None:
    programs = install(source, tmp_path / "venv", None, "proto/python")
    run(
        programs / "pip",
        "install",
        "-q",
        "--no-deps",
        f"protobuf=={protobuf}",
        f"grpcio=={grpcio}",
        "typing_extensions",
    )
    run(programs / "python", "-W", "error", "-c", IMPORT_ALL)
