"""The wire format of protocol buffers, read one level at a time: enough to look into a model before a runtime does.

A message is a row of fields, each a key (number and kind), then a value.  Nothing is copied and nothing allocated on
the word of the file: a length that reaches past the end of its message is an error, whatever it claims.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an int of a varint, else the bytes; ValueError where it is not a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field without a number")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in SIZES:
            length = SIZES[kind]
        else:  # 3 and 4 are groups, which ONNX has none of
            raise ValueError(f"a field of kind {kind}")
        if length > len(message) - at:
            raise ValueError("a field that is longer than what holds it")
        yield number, message[at : at + length]
        at += length


def parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The values of every field `wanted` that is made of bytes: strings, messages."""
    for number, value in fields(message):
        if number == wanted and isinstance(value, memoryview):
            yield value


def entry(key: bytes, value: bytes, number: int) -> bytes:
    """A field `number` that holds a message of two strings, 1 and 2: an entry of a map, as ONNX keeps metadata."""
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
    raise ValueError("a number of more than 64 bits")


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
