"""Named numpy arrays, and records of them, as ``.npz`` files: without pickle, and with a digest of
what was written."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from phaze_common.errors import ArtefactError
from phaze_common.files import artefact_bytes, write_atomically
from phaze_common.sealed import digest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

Arrays = Mapping[str, np.ndarray[Any, Any]]
MAX_ARRAY_BYTES = 2**30  # of a file, and of what it unpacks to
DIGEST = "digest"  # a file that merely looks like ours, whole but of other numbers, is noticed


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays under their names (none of which is ``digest``).

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    buffer = io.BytesIO()
    columns: dict[str, Any] = {**arrays, DIGEST: _digest(arrays)}
    np.savez(buffer, allow_pickle=False, **columns)
    write_atomically(path, buffer.getvalue(), private=True)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read what ``write_arrays`` wrote.

    Raises:
        ArtefactError: the file is damaged or holds something else.
    """
    try:
        with np.load(
            io.BytesIO(artefact_bytes(path, MAX_ARRAY_BYTES)), allow_pickle=False
        ) as archive:
            if sum(each.file_size for each in archive.zip.infolist()) > MAX_ARRAY_BYTES:
                raise ArtefactError(f"{path} unpacks to more than {MAX_ARRAY_BYTES:,} bytes")
            arrays = {name: archive[name] for name in archive.files}
    except (
        OSError,
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        TypeError,
    ) as error:
        raise ArtefactError(f"{path} is damaged: no complete file of arrays") from error
    stated = arrays.pop(DIGEST, None)
    if stated is None or not np.array_equal(stated, _digest(arrays)):
        raise ArtefactError(f"{path} is damaged: it does not hold what was written")
    return arrays


def store_arrays(path: Path, record: DataclassInstance) -> None:
    """Write a dataclass whose fields are all numpy arrays; raises as ``write_arrays``."""
    write_arrays(path, {field.name: getattr(record, field.name) for field in fields(record)})


def load_arrays(cls: type[Record], path: Path) -> Record:
    """Read what ``store_arrays`` wrote of a ``cls``.

    Raises:
        ArtefactError: the file is damaged or holds something else.
    """
    arrays = read_arrays(path)
    if arrays.keys() != {field.name for field in fields(cls)}:
        raise ArtefactError(f"{path} holds {', '.join(sorted(arrays))}, which is no {cls.__name__}")
    return cls(**arrays)


def unique_rows(
    rows: np.ndarray[Any, np.dtype[np.float64]],
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """Places of the first of each distinct row of (rows, columns), and for every row which of them
    it equals.

    As ``numpy.unique`` over an axis, many times as fast: rows are sorted by a hash, which is then
    checked.
    """
    words = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # 0.0 and -0.0 are one
    factors = np.random.default_rng(0).integers(
        1, 2**63, rows.shape[1], dtype=np.uint64
    ) * np.uint64(2) + np.uint64(1)
    hashed = (words * factors).sum(axis=1, dtype=np.uint64)
    _, first, same = np.unique(hashed, return_index=True, return_inverse=True)
    same = same.reshape(-1)
    if not np.array_equal(rows[first][same], rows):
        _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


def _digest(arrays: Arrays) -> np.ndarray[Any, np.dtype[np.uint8]]:
    parts = (
        part
        for name, array in sorted(arrays.items())
        for part in (
            f"{name} {array.dtype.str} {array.shape};".encode(),
            np.ascontiguousarray(array).tobytes(),
        )
    )
    return np.frombuffer(digest(*parts), dtype=np.uint8)
