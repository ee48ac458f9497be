"""The one writer of files at places that people name: what phaze did not write is never replaced,
unless that is asked for.

What phaze wrote is known by what stands in it (pages and timelines begin with who generated them),
or by its digest in the record ``.phaze-written`` of its folder. So a file of somebody else stays,
and so does one of ours that somebody has edited since.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from phaze_common.errors import InputError, PhazeError
from phaze_common.files import GZIP, artefact_bytes, at_once, parse_json, write_atomically
from phaze_common.sealed import digest_of

RECORD = ".phaze-written"
# of pages, and of timelines
MARKS = (b'<meta name="generator" content="phaze">', b'{"generator":"phaze"')
_HEAD_BYTES = 4096  # in which a mark stands
_LARGEST = 2**30  # of what could be ours


def write_output(
    path: Path, content: bytes, *, force: bool = False, flag: str = "--output"
) -> None:
    """Write ``content`` to ``path``, as ``write_outputs``."""
    write_outputs(path.parent, {path.name: content}, force=force, flag=flag)


def write_outputs(
    folder: Path, contents: Mapping[str, bytes], *, force: bool = False, flag: str = "--output"
) -> None:
    """Write files by their paths within ``folder``: all, or none.

    Raises:
        InputError: there is such a file and not ``force``, or nothing can be written there.
        PhazeError: the disk is full or fails.
    """
    check_replaceable(folder, contents, force=force, flag=flag)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    unmarked = {
        name: digest_of(content) for name, content in contents.items() if not _is_marked(content)
    }
    if unmarked:
        document = {"files": {**_recorded(folder), **unmarked}}
        write_atomically(folder / RECORD, json.dumps(document, indent=1, sort_keys=True).encode())


def check_replaceable(
    folder: Path, contents: Mapping[str, bytes | None], *, force: bool, flag: str = "--output"
) -> None:
    """Refuse to replace what phaze did not write; ``contents`` that are not known yet are None.

    Raises:
        InputError: there is such a file, and not ``force``.
    """
    if force:
        return
    recorded: Mapping[str, str] | None = None
    for name, content in contents.items():
        path = folder / name
        if not os.path.lexists(path):
            continue
        recorded = _recorded(folder) if recorded is None else recorded
        if not _is_ours(path, content, recorded.get(name)):
            raise InputError(
                f"{path} is there, and is not as phaze wrote it; move it, give another {flag}, or "
                "--force to replace it"
            )


def _is_ours(path: Path, content: bytes | None, recorded: str | None) -> bool:
    try:
        if _is_marked(_begins(path)):
            return True
        there = artefact_bytes(path, _LARGEST)
    except (OSError, PhazeError):
        return False
    return there == content or digest_of(there) == recorded


def _begins(path: Path) -> bytes:
    with open(path, "rb", opener=at_once) as stream:
        return stream.read(_HEAD_BYTES)


def _is_marked(content: bytes) -> bool:
    head = content[:_HEAD_BYTES]
    if head.startswith(GZIP):
        with suppress(zlib.error):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
    return any(mark in head for mark in MARKS)


def _recorded(folder: Path) -> dict[str, str]:
    """Digests of what was written into ``folder``, by path."""
    try:
        document = parse_json(artefact_bytes(folder / RECORD), RECORD)
    except (OSError, PhazeError):
        return {}
    files = document.get("files") if isinstance(document, dict) else None
    if isinstance(files, dict):
        return {name: each for name, each in files.items() if isinstance(each, str)}
    return {}
