"""The search over accelerators, sizes and plans: ``run_solver`` answers a study, ``space_size`` counts what it would search.

The names are loaded on first use, because the modules behind them compile their inner loops.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from Solver.search.cosearch import run_solver, space_size

__all__ = ["run_solver", "space_size"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("Solver.search.cosearch"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
