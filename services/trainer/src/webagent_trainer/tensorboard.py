"""TensorBoard's event file, written without TensorBoard: scalars only, one record a step.

record  length (uint64 LE) | masked CRC-32C of the length | event | masked CRC-32C of the event
event   1: wall time (double)  2: step (varint)  3: file version (string)  5: summary
summary 1: values, repeated; each 1: tag (string)  2: simple value (float)
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_VARINT, _LENGTH = 0, 2


def _row(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_row(value) for value in range(256)]


class EventFile:
    """One file of scalars; a process that resumes a run writes another beside it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**6}.{socket.gethostname()}.{os.getpid()}"
        self._path = directory / name
        self._append(_bytes(3, b"brain.Event:2"))

    def write(self, scalars: Mapping[str, float], *, step: int) -> None:
        """Appends the finite ones of `scalars`."""
        values = [
            _bytes(1, _bytes(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, value))
            for tag, value in scalars.items()
            if math.isfinite(value)
        ]
        self._append(_key(2, _VARINT) + _varint(step) + _bytes(5, b"".join(values)))

    def _append(self, fields: bytes) -> None:
        event = struct.pack("<Bd", 1 << 3 | 1, time.time()) + fields
        length = struct.pack("<Q", len(event))
        with self._path.open("ab") as file:
            file.write(length + _checksum(length) + event + _checksum(event))


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _key(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
