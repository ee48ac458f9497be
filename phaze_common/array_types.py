"""Types of numpy arrays by what they hold (docstrings say their shapes), and records of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def fieldwise(function: Callable[..., Any], *records: Record) -> Record:
    """A record whose every field is ``function`` of that field of ``records``, all of one type."""
    names = [field.name for field in fields(records[0])]
    columns = (function(*(getattr(each, name) for each in records)) for name in names)
    return type(records[0])(*columns)
