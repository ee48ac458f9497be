"""Records of numpy arrays as ``.npz`` files, without pickle."""

from __future__ import annotations

import io
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from Common.errors import ArtefactError
from Common.files import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


def store_arrays(path: Path, record: DataclassInstance) -> None:
    """Write a dataclass whose fields are all numpy arrays.

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    buffer = io.BytesIO()
    columns: dict[str, Any] = {field.name: getattr(record, field.name) for field in fields(record)}
    np.savez(buffer, allow_pickle=False, **columns)
    write_atomically(path, buffer.getvalue())


def load_arrays(cls: type[Record], path: Path) -> Record:
    """Read what ``store_arrays`` wrote.

    Raises:
        ArtefactError: the file is damaged or holds something else.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ArtefactError(f"{path} is damaged ({error})") from error
