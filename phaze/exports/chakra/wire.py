"""Protocol Buffers on the wire, as far as execution traces need it: both directions.

Encoding: https://protobuf.dev/programming-guides/encoding. A message is a sequence of fields, in
any order; unset ones are left out; ``framed`` messages stand one after another, each behind its
length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from phaze_common.errors import InputError

MOST_VARINT_BYTES = 10  # of 64 bits, 7 each


class WireType(IntEnum):
    """How the value of a field is written."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5


@dataclass(frozen=True)
class Field:
    """A field that was read: its number and its value, a whole number or the bytes of anything
    else."""

    number: int
    value: int | bytes

    @property
    def whole(self) -> int:
        """The value of a varint.

        Raises:
            InputError: it is none.
        """
        if isinstance(self.value, bytes):
            raise self._other("no whole number")
        return self.value

    @property
    def content(self) -> bytes:
        """The bytes of a text, message or double.

        Raises:
            InputError: it is a whole number.
        """
        if isinstance(self.value, int):
            raise self._other("a whole number")
        return self.value

    @property
    def double(self) -> float:
        """The value of a double."""
        if len(self.content) != 8:
            raise self._other("no double")
        return float(struct.unpack("<d", self.content)[0])

    def _other(self, what: str) -> InputError:
        return InputError(
            f"field {self.number} of a message is {what}; it is damaged, or of another schema"
        )


def varint(value: int) -> bytes:
    """``value`` of 0 to 2^64 - 1, seven bits per byte, low ones first.

    Raises:
        ValueError: it is outside of them.
    """
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is no unsigned number of 64 bits")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def whole(number: int, value: int) -> bytes:
    """A field of type uint64, int64, int32 (not below 0), bool or enum."""
    return varint(number << 3 | WireType.VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    """A field of type double."""
    return varint(number << 3 | WireType.FIXED64) + struct.pack("<d", value)


def content(number: int, value: bytes) -> bytes:
    """A field of bytes or a message."""
    return varint(number << 3 | WireType.LENGTH_DELIMITED) + varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """A field of type string."""
    return content(number, value.encode())


def packed(number: int, values: Iterable[int]) -> bytes:
    """A repeated field of whole numbers; nothing where there are none."""
    joined = b"".join(map(varint, values))
    return content(number, joined) if joined else b""


def framed(message: bytes) -> bytes:
    """A message behind its length."""
    return varint(len(message)) + message


def read_fields(message: bytes) -> Iterator[Field]:
    """The fields of ``message`` in its order.

    Raises:
        InputError: it is damaged, or has groups, which no schema of today does.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == WireType.VARINT:
            value, at = read_varint(message, at)
            yield Field(number, value)
            continue
        if kind == WireType.LENGTH_DELIMITED:
            length, at = read_varint(message, at)
        elif kind in (WireType.FIXED64, WireType.FIXED32):
            length = 8 if kind == WireType.FIXED64 else 4
        else:
            raise InputError(
                f"a message has a field of wire type {kind}, which there is not; it is damaged"
            )
        if at + length > len(message):
            raise _cut_off()
        yield Field(number, message[at : at + length])
        at += length


def read_packed(message: bytes) -> tuple[int, ...]:
    """The whole numbers of a packed field."""
    values, at = list[int](), 0
    while at < len(message):
        value, at = read_varint(message, at)
        values.append(value)
    return tuple(values)


def read_framed(stream: bytes) -> Iterator[bytes]:
    """Messages that stand one after another, each behind its length.

    Raises:
        InputError: the last one ends too early.
    """
    at = 0
    while at < len(stream):
        length, at = read_varint(stream, at)
        if at + length > len(stream):
            raise _cut_off()
        yield stream[at : at + length]
        at += length


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The varint at ``at``, and where it ends.

    Raises:
        InputError: it has no end.
    """
    value = 0
    for place in range(MOST_VARINT_BYTES):
        if at + place >= len(message):
            raise _cut_off()
        byte = message[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise InputError("a whole number of a message has more than 64 bits; it is damaged")


def _cut_off() -> InputError:
    return InputError("a message ends in the middle of a field; the file is cut off or damaged")
