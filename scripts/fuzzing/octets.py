"""Mutations of files as bytes: what disks, editors, transfers and other programs do to them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random

HOLE = 64  # bytes


def mutated(content: bytes, random: Random) -> tuple[bytes, str]:
    """``content`` damaged once or twice, and how."""
    told = []
    for _ in range(random.choice((1, 1, 1, 2))):
        name = random.choice(list(_CHANGES))
        content = _CHANGES[name](content, random)
        told.append(name)
    return content, "; ".join(told)


def _place(content: bytes, random: Random) -> int:
    return random.randrange(len(content) + 1)


def _flip(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 3, 30)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def _remove(content: bytes, random: Random) -> bytes:
    start = _place(content, random)
    return content[:start] + content[start + random.randrange(1, HOLE) :]


def _repeat(content: bytes, random: Random) -> bytes:
    start = _place(content, random)
    return (
        content[:start] + content[start : start + HOLE] * random.choice((2, 50)) + content[start:]
    )


def _insert(content: bytes, random: Random) -> bytes:
    start = _place(content, random)
    inserted = random.choice(
        (
            b"\0",
            b"\xff\xfe",
            b"\r",
            b"\x1b[2J",
            b"'",
            b'"',
            b"{",
            b"]",
            b": ",
            b"- ",
            b"&a *a ",
            b"!!python/none ",
        )
    )
    return content[:start] + inserted + content[start:]


def _digits(content: bytes, random: Random) -> bytes:
    """A digit replaced by others: the number is still one, and another."""
    places = [index for index, byte in enumerate(content[:200_000]) if 48 <= byte <= 57]
    if not places:
        return content
    start = random.choice(places)
    return (
        content[:start]
        + random.choice((b"0", b"-1", b"9" * 20, b"1e40", b"1e308", b".5", b"NaN", b"Infinity"))
        + content[start + 1 :]
    )


def _wrapped(content: bytes, random: Random) -> bytes:
    return gzip.compress(content, mtime=0)


_CHANGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "bits flipped": _flip,
    "truncated": _truncate,
    "bytes removed": _remove,
    "bytes repeated": _repeat,
    "bytes inserted": _insert,
    "digits replaced": _digits,
    "digits exchanged": _digits,
    "emptied": lambda content, random: b"",
    "zeros": lambda content, random: bytes(len(content)),
    "noise": lambda content, random: random.randbytes(random.choice((1, 16, 4096))),
    "marked": lambda content, random: b"\xef\xbb\xbf" + content,
    "in UTF-16": lambda content, random: content.decode("latin-1").encode("utf-16"),
    "lines of another system": lambda content, random: content.replace(b"\n", b"\r\n"),
    "compressed": _wrapped,
}
