"""The designs of a run that are followed under every sample from the start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator
from phaze.runs.accelerator_values import accelerator_values
from phaze.runs.finished_run import FinishedRun
from phaze.studies.robust.sampled_space import SampledSpace
from phaze.studies.robust.uncertain import Physics
from phaze_common.errors import InputError
from Solver.designs.plans_on_chips import EvaluatedPlans
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PRICED = 2  # times as many designs as are taken are priced, by bound and by value


def contenders_of(
    finished: FinishedRun, run: SearchContext, physics: Physics, most: int
) -> IntArray:
    """Rows of the best design of ``finished`` and of the ``most`` others that come nearest to it.

    Bounds of designs that the search did not evaluate are loose: several times as many are priced,
    by bound and by value, and the best of them taken.

    Raises:
        InputError: the space of the run has changed since.
    """
    best = finished.result.best
    assert best is not None and best.accelerator is not None
    known = accelerator_values(finished, finished.designs)
    reach = np.maximum(known.reach, known.found)
    looked_at = {*np.argsort(-reach, kind="stable")[: PRICED * most].tolist()}
    looked_at |= {*np.argsort(-known.found, kind="stable")[: PRICED * most].tolist()}
    chips = [known.accelerators.accelerator(row) for row in sorted(looked_at)]
    chosen, *others = rows_of(run, [best.accelerator, *chips])
    rows = np.array([row for row in dict.fromkeys(others) if row != chosen], dtype=np.int64)
    values = SampledSpace(run, physics, EvaluatedPlans()).values(rows)
    return np.array(
        [chosen, *rows[np.argsort(-values, kind="stable")][:most].tolist()], dtype=np.int64
    )


def rows_of(run: SearchContext, chips: Sequence[Accelerator]) -> list[int]:
    """Where the space of ``run`` has some chips.

    Raises:
        InputError: it has one of them no more.
    """
    assert isinstance(run.hardware, DesignedChips)
    found = [run.hardware.accelerators.find(chip) for chip in chips]
    rows = [row for row in found if row is not None]
    if len(rows) < len(found):
        raise InputError(
            "the design space of the run has changed since, and has its best designs no more; run "
            "the study again"
        )
    return rows
