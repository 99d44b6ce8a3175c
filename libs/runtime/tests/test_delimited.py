"""Length-delimited files: what was appended is read, whatever the sizes and wherever the file was cut."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webagent.trajectory.v1 import trajectory_pb2
from webagent_runtime.delimited import CorruptError, TruncatedError, append, read, read_with_offsets

DETAILS = st.lists(st.text(max_size=300), max_size=8)


def write_all(path: Path, details: list[str]) -> list[int]:
    return [append(path, trajectory_pb2.Trajectory(detail=detail)) for detail in details]


@settings(deadline=None, max_examples=40)
@given(DETAILS)
def test_messages_come_back_in_order_with_their_offsets(details):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "archive"
        path.touch()
        offsets = write_all(path, details)
        found = list(read_with_offsets(path, trajectory_pb2.Trajectory))
    assert [message.detail for message, _ in found] == details
    assert [offset for _, offset in found] == offsets


@settings(deadline=None, max_examples=40)
@given(DETAILS.filter(bool), st.data())
def test_a_cut_file_gives_its_whole_messages_and_then_says_where_they_end(details, data):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "archive"
        offsets = write_all(path, details)
        cut = data.draw(st.integers(0, offsets[-1] - 1))
        content = path.read_bytes()[:cut]
        path.write_bytes(content)
        whole = [offset for offset in offsets if offset <= cut]
        found: list[str] = []
        ends: int | None = None
        try:
            for message in read(path, trajectory_pb2.Trajectory):
                found.append(message.detail)
        except TruncatedError as error:
            ends = error.offset
    assert found == details[: len(whole)]
    assert ends == (None if cut in {0, *whole} else max(whole, default=0))


def test_reading_starts_where_it_is_told(tmp_path):
    path = tmp_path / "archive"
    first, *_ = write_all(path, ["a", "b", "c"])
    assert [message.detail for message in read(path, trajectory_pb2.Trajectory, start=first)] == ["b", "c"]


def test_whole_messages_come_before_the_error(tmp_path):
    path = tmp_path / "archive"
    write_all(path, ["a", "b"])
    path.write_bytes(path.read_bytes()[:-1])
    reading = read(path, trajectory_pb2.Trajectory)
    assert next(reading).detail == "a"
    with pytest.raises(TruncatedError, match="ends within a message"):
        next(reading)


@pytest.mark.parametrize("content", [b"\x02\xff\xff", b"\xff" * 11])
def test_bytes_that_are_no_message_are_named(tmp_path, content):
    path = tmp_path / "archive"
    path.write_bytes(content)
    with pytest.raises(CorruptError, match="at byte 0"):
        list(read(path, trajectory_pb2.Trajectory))
