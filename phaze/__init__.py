"""Which accelerator to build for a model, and how to train on a cluster of it.

    import phaze

    study = phaze.study(model="bertlarge", micro_batch_size=[1, 2, 4], hbm_size=[32, 80])
    result = phaze.run_solver(study)
    print(result.best.accelerator, result.best.models["bertlarge"].pp)
    designs = phaze.open_run(result.run_directory).designs

The functions are loaded on first use; what they refuse names keywords, not flags.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from phaze_common.version import VERSION

__version__ = VERSION
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
        return import_module("phaze.python_words").function_of(name)
    if name == "main":
        return import_module("phaze.cli.main").main
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LIBRARY, "main"})
