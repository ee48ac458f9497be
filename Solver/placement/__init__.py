"""Exact placement of a model's layers on the devices of a cluster.

``place_chain`` solves one accelerator, ``place_batch`` and ``lower_bounds_s`` many, ``place_dag`` a branching layer graph;
``evaluate_plan`` prices a plan that is given. The names are loaded on first use, because the solvers compile their inner loops.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "balanced_cuts": "evaluate",
    "evaluate_plan": "evaluate",
    "lower_bounds_s": "batch",
    "place_batch": "batch",
    "place_chain": "chain",
    "place_dag": "dag",
    "stage_memory": "evaluate",
}

__all__ = ["balanced_cuts", "evaluate_plan", "lower_bounds_s", "place_batch", "place_chain", "place_dag", "stage_memory"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
