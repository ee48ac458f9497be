"""Exact placement of a model's layers on the devices of a cluster.

``place`` solves one accelerator, ``place_batch`` and ``lower_bounds_s`` many; layers that form a chain and layer graphs that
branch each have a solver of their own behind them. ``what_is_lost`` tells what keeps the answer to a graph that branches too
much from being exact, ``relaxed_bounds_s`` what no plan of it beats. ``evaluate_plan`` prices a plan that is given. The names
are loaded on first use, because the solvers compile their inner loops.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "balanced_cuts": "evaluate",
    "evaluate_plan": "evaluate",
    "lower_bounds_s": "batch",
    "place": "placing",
    "place_batch": "batch",
    "place_chain": "chain",
    "relaxed_bounds_s": "batch",
    "stage_memory": "evaluate",
    "stage_times": "evaluate",
    "what_is_lost": "placing",
}

__all__ = [
    "balanced_cuts",
    "evaluate_plan",
    "lower_bounds_s",
    "place",
    "place_batch",
    "place_chain",
    "relaxed_bounds_s",
    "stage_memory",
    "stage_times",
    "what_is_lost",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
