"""The search, from Python: what to build for a model, in a few lines.

    from Solver import search

    study = search.study(model="bertlarge", micro_batch_size=[1, 2, 4], hbm_size=[32, 80])
    result = search.run_solver(study)
    print(result.best.accelerator, result.best.models["bertlarge"].pp)
    designs = search.open_run(result.run_directory).designs

These names are those of ``Studies.library``, loaded on first use; what they refuse names keywords,
not flags.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LIBRARY = (
    "evaluate_many",
    "explain",
    "open_run",
    "run_solver",
    "space_size",
    "study",
    "training_time",
)


def __getattr__(name: str) -> Any:
    if name in _LIBRARY:
        return import_module("Studies.python_words").function_of(name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LIBRARY})
