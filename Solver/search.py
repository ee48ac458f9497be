"""The earlier name of ``phaze.study``, ``phaze.run_solver`` and the rest, until version 0.3."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    warnings.warn(
        f"Solver.search.{name} is now phaze.{name}; the earlier name goes with version 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(import_module("phaze"), name)
