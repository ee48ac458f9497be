"""Finished points on disk, each in a run directory with a record that says it is whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phaze.studies.sweep.results import PointResult
from phaze_common.errors import ArtefactError, InputError
from phaze_common.file_formats import POINT, FormatError
from phaze_common.files import artefact_bytes, load_or_set_aside, unwritable, write_atomically
from phaze_common.parquet import MAX_FILE_BYTES
from phaze_common.records import from_json, to_json
from phaze_common.run_files import BEST, DESIGNS, MANIFEST, PLANS, SCHEDULES, STUDY
from phaze_common.sealed import digest_of, sealed, unsealed

logger = logging.getLogger(__name__)

RECORD = "point.json"
IDENTITY = ".store"
_LOCK = ".lock"
_UNFINISHED = "points"  # what a search keeps in case it is killed
_FILES = (MANIFEST, BEST, DESIGNS, PLANS, SCHEDULES, STUDY)  # of a run


@dataclass(frozen=True)
class FinishedPoint:
    """A point's result, its seconds on ``machine``, and the digests of the files beside it."""

    key: str  # hash of all that the point depends on
    result: PointResult  # what the search of the point answered
    seconds: float  # that it took
    machine: str
    files: dict[str, str]  # digests of the files beside it, by name


class Store:
    """A folder of points, which several processes may use: files appear whole."""

    def __init__(self, folder: Path) -> None:
        self.root = folder

    def folder(self, key: str) -> Path:
        """The run directory of a point."""
        return self.root / key

    def identity(self) -> str:
        """A text of this folder alone, by which another machine knows whether it sees the disk.

        Raises:
            PhazeError: the folder cannot be written.
        """
        path = self.root / IDENTITY
        if not path.exists():
            write_atomically(path, secrets.token_hex(16).encode())
        return artefact_bytes(path).decode()

    def is_called(self, identity: str) -> bool:
        """Whether this folder, seen from here, is the one of that ``identity``."""
        try:
            return artefact_bytes(self.root / IDENTITY) == identity.encode()
        except (OSError, ArtefactError):
            return False

    def load(self, key: str) -> FinishedPoint | None:
        """A finished point; None where it is not there or damaged, which is said and set aside."""
        folder = self.folder(key)
        stored = load_or_set_aside(folder / RECORD, lambda path: _read(path, key))
        if stored is None:
            return None
        for name, digest in stored.files.items():
            if _digest_of(folder / name) != digest:
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).replace(folder / f"{name}.damaged")
                (folder / RECORD).unlink(missing_ok=True)
                logger.warning(
                    "%s is damaged: set aside as %s.damaged, its point is computed again",
                    folder / name,
                    name,
                )
                return None
        # where a run was killed just before it did so
        shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
        return stored

    def peek(self, key: str) -> PointResult | None:
        """The result of a finished point, if its record can be read. Changes nothing.

        Raises:
            FormatError: its record is of a version that is not read.
        """
        try:
            return _read(self.folder(key) / RECORD, key).result
        except ArtefactError:
            return None

    def finish(self, key: str, result: PointResult, seconds: float) -> FinishedPoint:
        """Record that a point is whole, and remove what only an unfinished one needs.

        Raises:
            PhazeError: the disk is full or the folder is not writable.
        """
        folder = self.folder(key)
        files = {name: _digest_of(folder / name) for name in _FILES}
        point = FinishedPoint(key, result, seconds, os.uname().nodename, files)
        self._record(point)
        return point

    def receive(self, point: FinishedPoint, contents: dict[str, bytes]) -> None:
        """Store a point that was computed elsewhere.

        Raises:
            PhazeError: the disk is full or the folder is not writable.
        """
        for name, content in contents.items():
            write_atomically(self.folder(point.key) / name, content)
        self._record(point)

    def contents(self, point: FinishedPoint) -> dict[str, bytes]:
        """The files of a point by name."""
        return {
            name: artefact_bytes(self.folder(point.key) / name, MAX_FILE_BYTES)
            for name in point.files
        }

    @contextlib.contextmanager
    def locked(self, key: str, *, wait: bool) -> Iterator[bool]:
        """Keep others from computing a point meanwhile; yields whether nobody does already.

        With ``wait`` that process is waited for. The system ends the lock with its process, however
        that ends. Where the disk knows no locks nobody is kept from anything, which costs time and
        is no error.

        Raises:
            PhazeError: the disk is full or the folder is not writable.
        """
        path = self.folder(key) / _LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise unwritable(path.parent, error, "choose another --output") from error
        try:
            yield _lock(descriptor, wait=wait)
        finally:
            os.close(descriptor)

    def _record(self, point: FinishedPoint) -> None:
        folder = self.folder(point.key)
        write_atomically(folder / RECORD, sealed(POINT.stamped_json(to_json(point))))
        shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)


def _read(path: Path, key: str) -> FinishedPoint:
    try:
        text = POINT.current_json(unsealed(artefact_bytes(path), str(path)), str(path))
        point = from_json(FinishedPoint, text, str(path))
    except FormatError:
        raise
    except (InputError, OSError) as error:
        raise ArtefactError(f"{path} is damaged ({error})") from error
    if point.key != key or point.files.keys() != {*_FILES}:
        raise ArtefactError(f"{path} is that of another point; it is damaged, or was put there")
    return point


def _lock(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        return error.errno not in {errno.EWOULDBLOCK, errno.EAGAIN}
    return True


def _digest_of(path: Path) -> str:
    try:
        return digest_of(artefact_bytes(path, MAX_FILE_BYTES))
    except (OSError, ArtefactError):
        return ""
