"""Pipeline schedules (GPipe, 1F1B, interleaved 1F1B) of unequal stages: exact times, what stages hold, closed forms, bounds.

The names are loaded on first use, because the simulation compiles its inner loops.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "PipelineCosts": "schedule",
    "PipelinePasses": "simulation",
    "PipelineSchedule": "schedule",
    "PipelineTimes": "simulation",
    "bounds_s": "simulation",
    "closed_form_s": "closed_forms",
    "costs_of": "schedule",
    "held_bytes": "simulation",
    "in_flight": "schedule",
    "makespans_s": "simulation",
    "simulate": "simulation",
    "timeline": "simulation",
    "warm_up": "schedule",
}

__all__ = [
    "PipelineCosts",
    "PipelinePasses",
    "PipelineSchedule",
    "PipelineTimes",
    "bounds_s",
    "closed_form_s",
    "costs_of",
    "held_bytes",
    "in_flight",
    "makespans_s",
    "simulate",
    "timeline",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
