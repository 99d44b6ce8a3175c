"""Files of protobuf messages, each preceded by its length as a varint: the form of a run's archive.

A message is on disk once `append` returned. A process that died while writing leaves a truncated last message; reading
hands out all whole ones first and then raises TruncatedError, whose offset is where the file can be cut.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from google.protobuf.message import DecodeError, Message

M = TypeVar("M", bound=Message)

_MAX_VARINT_BYTES = 10


class TruncatedError(Exception):
    """The file ends within a message. `offset` is the end of the last whole one."""

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(f"{path} ends within a message; its whole messages end at byte {offset}")
        self.path = path
        self.offset = offset


class CorruptError(Exception):
    """What stands at `offset` is no message of the expected kind."""

    def __init__(self, path: Path, offset: int, cause: str) -> None:
        super().__init__(f"{path} holds no message at byte {offset}: {cause}")
        self.path = path
        self.offset = offset


def append(path: Path, message: Message) -> int:
    """Writes one message durably and returns the file's length after it."""
    payload = message.SerializeToString()
    with path.open("ab") as file:
        file.write(_varint(len(payload)) + payload)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def read(path: Path, model: type[M], *, start: int = 0) -> Iterator[M]:
    """Yields the messages from byte `start` on, which must be an offset that `append` returned."""
    for message, _ in read_with_offsets(path, model, start=start):
        yield message


def read_with_offsets(path: Path, model: type[M], *, start: int = 0) -> Iterator[tuple[M, int]]:
    """As `read`, each message with the offset after it."""
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        while (size := _read_varint(file, path, offset)) is not None:
            payload = file.read(size)
            if len(payload) < size:
                raise TruncatedError(path, offset)
            try:
                message = model.FromString(payload)
            except DecodeError as error:
                raise CorruptError(path, offset, str(error)) from None
            offset = file.tell()
            yield message, offset


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(file: BinaryIO, path: Path, offset: int) -> int | None:
    """The next length; None at the end of the file."""
    value = 0
    for position in range(_MAX_VARINT_BYTES):
        byte = file.read(1)
        if not byte:
            if position == 0:
                return None
            raise TruncatedError(path, offset)
        value |= (byte[0] & 0x7F) << (7 * position)
        if byte[0] < 0x80:
            return value
    raise CorruptError(path, offset, "a length has more than ten bytes")
