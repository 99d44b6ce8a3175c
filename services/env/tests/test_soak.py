"""Sessions whose clients die at random leave nothing behind: the benchmark's soak, cut short."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[3] / "benchmarks" / "env" / "soak.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not SOAK.exists(), reason="the benchmarks are not beside the package")
def test_clients_that_die_leave_nothing_behind(tmp_path):
    state, out = tmp_path / "state.json", tmp_path / "out.json"
    for sessions in (20, 60):  # the second goes on where the first ended
        command = [sys.executable, SOAK, "--sessions", str(sessions), "--clients", "2", "--state", state, "--out", out]
        subprocess.run(command, capture_output=True, timeout=420, check=False)
    told = json.loads(out.read_text())
    assert (len(told["shares"]), told["sessions"] >= 60, told["deaths"] > 2) == (2, True, True)
    assert [share["left"] for share in told["shares"]] == [dict.fromkeys(told["shares"][0]["left"], 0)] * 2
    # So short a run says nothing of memory.
    assert all(kept for aim, kept in told["aims"].items() if "memory" not in aim)
