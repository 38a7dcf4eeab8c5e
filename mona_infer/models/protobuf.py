"""The protocol buffer wire format, read one level at a time: enough to inspect a model before a runtime loads it.

A message is a sequence of fields, each a key (number and kind) followed by a value.  Nothing is copied, and no memory
is allocated because the file says so: a length beyond the end of its message is an error.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an int for a varint, else the bytes; ValueError if it is not a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has no number")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in SIZES:
            length = SIZES[kind]
        else:  # 3 and 4 are groups, which ONNX does not use
            raise ValueError(f"a field has the unknown kind {kind}")
        if length > len(message) - at:
            raise ValueError("a field is longer than its message")
        yield number, message[at : at + length]
        at += length


def parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The values of every field with number `wanted` that holds bytes: a string or a message."""
    for number, value in fields(message):
        if number == wanted and isinstance(value, memoryview):
            yield value


def entry(key: bytes, value: bytes, number: int) -> bytes:
    """Field `number` with a message of two strings, 1 and 2: a map entry, as ONNX stores metadata."""
    body = b"\x0a" + _to_varint(len(key)) + key + b"\x12" + _to_varint(len(value)) + value
    return _to_varint(number << 3 | BYTES) + _to_varint(len(body)) + body


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):  # ten bytes hold 64 bits
        if at >= len(message):
            raise ValueError("it ends in the middle of a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than 64 bits")


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
