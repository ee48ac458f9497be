"""Solves the placement problems of NEST (scai-tech/Nest, arXiv 2603.06798) exactly, under NEST's
own cost.

    # prints {"time_per_batch", "tp", "dp", "stages", "max_load", "sync"}
    python -m third_party.nest place CASE.json

A file may hold one case or a list of cases, each the problem itself or an object that holds it as
"problem"; the format is at the head of ``third_party/nest/problem.py``. The answer goes to stdout
as JSON, likewise one or a list: times in seconds, "stages" as lists of layer ids, first stage
first, and null in every field where nothing fits. Wrong input is refused with one sentence on
stderr and exit status 2.
"""

from collections.abc import Sequence
from typing import Any

from third_party.cases import answer_cases


def place(document: dict[str, Any]) -> dict[str, Any]:
    """The optimum of a case. Raises InputError: a field is missing or wrong."""
    from .placement import best_plan
    from .problem import read_problem

    plan = best_plan(read_problem(document))
    if plan is None:
        return dict.fromkeys(("time_per_batch", "tp", "dp", "stages", "max_load", "sync"))
    return {
        "time_per_batch": plan.seconds,
        "tp": plan.tp,
        "dp": plan.dp,
        "stages": [list(stage) for stage in plan.stages],
        "max_load": plan.load_s,
        "sync": plan.sync_s,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    about = (__doc__ or "").split("\n")[0]
    return answer_cases("third_party.nest", about, {"place": place}, arguments)
