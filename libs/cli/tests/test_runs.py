"""Names of runs are names that the queue takes; their files are told as one would type them."""

from pathlib import Path

import pytest
from webagent_cli.runs import new_run, shown
from webagent_runtime.config import ConfigError
from webagent_runtime.queue.streams import request_subject

CONFIGS = sorted(Path(__file__).parents[3].glob("configs/*.yaml"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_run_named_after_its_configuration_can_be_trained(tmp_path: Path, config: Path) -> None:
    assert request_subject(new_run(tmp_path, None, label=config.stem).id)


@pytest.mark.parametrize("name", ["a.b", "a b", "a/b", "latest", "x" * 65])
def test_a_name_that_the_queue_refuses_makes_no_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a run's name is"):
        new_run(tmp_path, name, label="train")
    assert not list(tmp_path.iterdir())


def test_paths_are_shown_as_one_would_type_them_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs" / "latest") == Path("runs/latest")
    assert shown(tmp_path.parent / "elsewhere") == tmp_path.parent / "elsewhere"
