"""A checkpoint is whole or an error that names what is wrong; unfinished ones do not exist."""

from pathlib import Path

import pytest
from webagent_trainer.checkpoint import Checkpoints
from webagent_trainer.errors import RunFailedError


def write_engine(path: Path) -> None:
    path.mkdir()
    (path / "weights.bin").write_bytes(b"x" * 100)


def test_the_newest_checkpoint_comes_back_and_old_ones_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.newest() is None
    for number in range(4):
        checkpoints.save({"number": number}, write_engine)
    found = checkpoints.newest()
    assert found is not None
    assert found.state == {"number": 3}
    assert found.engine is not None
    assert (found.engine / "weights.bin").stat().st_size == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]


def test_without_an_engine_the_phase_begins_anew(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save({}, None)
    found = checkpoints.newest()
    assert found is not None
    assert found.engine is None


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save({"number": 1}, write_engine)

    def fail(path: Path) -> None:
        write_engine(path)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoints.save({"number": 2}, fail)
    found = checkpoints.newest()
    assert found is not None
    assert found.state == {"number": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("engine/weights.bin", None, "weights.bin is missing"),
        ("engine/weights.bin", b"x" * 50, "has 50 bytes, not 100"),
        ("state.json", b"{}", "has changed"),
        ("state.json", None, "state.json"),
        ("complete.json", b"{", "complete.json|Expecting|checkpoint"),
    ],
)
def test_a_missing_or_damaged_piece_is_a_loud_error(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save({"number": 1}, write_engine)
    path = tmp_path / "1" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(RunFailedError, match=message) as error:
        checkpoints.newest()
    assert error.value.reason == "CHECKPOINT_DAMAGED"
