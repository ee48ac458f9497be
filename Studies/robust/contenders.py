"""The designs of a run that might be the best if constants were others, and what they reach with given constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from Common.choices import FrontAxis
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Solver.hardware import DesignedChips
from Solver.search.points import PointStatus
from Solver.search.requery import priced
from Solver.search.run import Run
from Studies.explain.designs import accelerator_values
from Studies.finished_run import FinishedRun
from Studies.robust.uncertain import Physics

FloatArray = NDArray[np.float64]

EVERY = tuple(axis for axis in FrontAxis if axis is not FrontAxis.NONE)
PRICED = 2  # times as many designs as are taken are priced, by bound and by value


@dataclass(frozen=True, eq=False)
class Contenders:
    """The first of ``accelerators`` is the chosen one; of all ``considered`` those left out are ``behind`` by that much."""

    accelerators: tuple[Accelerator, ...]
    considered: int
    behind: float


def contenders_of(finished: FinishedRun, run: Run, physics: Physics, most: int) -> Contenders:
    """The best design of ``finished`` and the ``most`` others that come nearest to it.

    Bounds of designs that the search did not evaluate are loose: several times as many are priced, by bound and by value, and the
    best of them taken.
    """
    best = finished.result.best
    assert best is not None and best.accelerator is not None
    known = accelerator_values(finished, finished.designs)
    reach = np.maximum(known.reach, known.found)
    looked_at = {*np.argsort(-reach, kind="stable")[: PRICED * most].tolist()}
    looked_at |= {*np.argsort(-known.found, kind="stable")[: PRICED * most].tolist()}
    rows = [row for row in sorted(looked_at) if known.accelerators.accelerator(row) != best.accelerator]
    chips = [known.accelerators.accelerator(row) for row in rows]
    values = values_of(run, chips, physics) if chips else np.zeros(0)
    order = np.argsort(-values, kind="stable")
    left = [float(values[place]) for place in order[most:]]
    left += [float(value) for row, value in enumerate(reach) if row not in looked_at]
    behind = 1.0 - max(left) / best.value if left else 1.0
    return Contenders((best.accelerator, *(chips[place] for place in order[:most])), len(reach), max(behind, 0.0))


def values_of(run: Run, chips: Sequence[Accelerator], physics: Physics) -> FloatArray:
    """The objective of each of ``chips`` with its best plans under ``physics``, 0 where nothing fits; shape (chips,)."""
    given = run.hardware
    assert isinstance(given, DesignedChips)
    sized = [physics.space.with_area(chip) for chip in chips]
    hardware = replace(
        given,
        accelerators=AcceleratorSet.of(sized),
        platform=physics.space.platform,
        cluster=physics.cluster,
        space=physics.space,
        references=(),
        known_figures=None,
        _scheduled={},
    )
    asked, problem = priced(run, hardware, EVERY), run.problem  # each one's own value is told, not that of the best alone
    best: dict[str, FloatArray] = {model.name: np.full(len(chips), -np.inf) for model in problem.models}
    for size in problem.memory_bytes:
        for group in asked.groups(size):
            group.evaluate(np.flatnonzero(group.status != PointStatus.INFEASIBLE))
            of_rows = group.objective(problem.objective).reshape(-1, len(chips)).max(axis=0)
            best[group.key.model] = np.maximum(best[group.key.model], of_rows)
    together = problem.combination.of(best)
    return np.where(np.isfinite(together), together, 0.0)
