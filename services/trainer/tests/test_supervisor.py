"""What a run says that ended by something nobody foresaw."""

from pathlib import Path

import pytest
import torch
from webagent_trainer.supervisor import crash_of


def test_a_full_disk_is_named_whatever_the_error_says(tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, OSError)) as told:
        torch.save(torch.zeros(1 << 20), "/dev/full")
    reason, detail = crash_of(told.value, tmp_path, free_bytes=3 << 20)
    assert reason == "DISK_FULL"
    assert f"{tmp_path} has 3 MiB left: make room there and resume" in detail
    assert crash_of(told.value, tmp_path, free_bytes=1 << 40)[0] == "CRASHED"
