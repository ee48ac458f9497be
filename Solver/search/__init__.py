"""The search, from Python: what to build for a model, in a few lines.

    from Solver import search

    study = search.study(model="bertlarge", micro_batch_size=[1, 2, 4], hbm_size=[32, 80])
    result = search.run_solver(study)
    print(result.best.accelerator, result.best.models["bertlarge"].pp)
    designs = search.open_run(result.run_directory).designs

The names are loaded on first use, because the modules behind them compile their inner loops.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from Studies.library import explain, open_run, run_solver, space_size, study

_HOMES = {
    "explain": "Studies.library",
    "open_run": "Studies.library",
    "run_solver": "Studies.library",
    "space_size": "Studies.library",
    "study": "Studies.library",
}

__all__ = ["explain", "open_run", "run_solver", "space_size", "study"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
