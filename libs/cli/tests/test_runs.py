"""Where a run's files lie, as a person is told."""

from pathlib import Path

import pytest
from webagent_cli.runs import shown


def test_paths_are_shown_as_one_would_type_them_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs" / "latest") == Path("runs/latest")
    assert shown(tmp_path.parent / "elsewhere") == tmp_path.parent / "elsewhere"
