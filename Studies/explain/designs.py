"""The design points of a finished search by accelerator: what each is known to reach, and what it cannot exceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from Common.choices import Combine, Objective
from Estimator.chips.accelerator import AcceleratorSet
from Solver.combination import Combination
from Solver.search.points import objective_value
from Studies.config_files import split_weight
from Studies.explain.constraints import AXES
from Studies.finished_run import FinishedRun

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AcceleratorValues:
    """The objective on each accelerator, shape (accelerators,), of all models together, each with its best plan.

    ``reach`` is what no plan exceeds (0: some model fits with none), ``found`` that of the best plans evaluated (0: there are
    none).
    """

    accelerators: AcceleratorSet
    reach: FloatArray
    found: FloatArray


def accelerator_values(run: FinishedRun, designs: pd.DataFrame) -> AcceleratorValues:
    """The accelerators in ``designs``, rows of the table of ``run``.

    A model that no row is about counts with 0 everywhere.
    """
    objective = Objective(run.settings["objective"])
    combination = combination_of(run)
    keys: IntArray = np.asarray(designs.groupby([*AXES, "area_mm2"], sort=False).ngroup(), dtype=np.int64)
    count = int(keys.max()) + 1 if len(keys) else 0
    first = np.unique(keys, return_index=True)[1]
    columns = {name: designs[name].to_numpy()[first] for name in (*AXES, "area_mm2")}
    reach, found = dict[str, FloatArray](), dict[str, FloatArray]()
    feasible = (designs["status"] != "infeasible").to_numpy()
    evaluated = (designs["status"] == "evaluated").to_numpy()
    model = designs["model"].astype(str).to_numpy()
    for name in combination.weights:
        mine = (model == name) & feasible
        reach[name] = _largest(_objective(objective, designs["throughput_bound_samples_per_s"], designs), mine, keys, count)
        found[name] = _largest(_objective(objective, designs["throughput_samples_per_s"], designs), mine & evaluated, keys, count)
    return AcceleratorValues(AcceleratorSet(**columns), _together(combination, reach), _together(combination, found))


def _together(combination: Combination, values: dict[str, FloatArray]) -> FloatArray:
    possible = np.logical_and.reduce([each > 0.0 for each in values.values()])
    if not possible.any():
        return np.zeros(len(possible))
    return np.where(possible, combination.of(values), 0.0)


def combination_of(run: FinishedRun) -> Combination:
    """How the objectives of the models of ``run`` become one."""
    how = Combine(run.settings.get("combine", Combine.MEAN))  # runs of before know no other
    return Combination(how, model_weights(run.settings), run.result.own_best)


def model_weights(settings: dict[str, Any]) -> dict[str, float]:
    """Weight of each model of a study, by its name."""
    parts = [split_weight(text) for text in settings["model"]]
    return {name: 1.0 if weight is None else float(weight) for name, weight in parts}


def _objective(objective: Objective, throughput: pd.Series[float], designs: pd.DataFrame) -> FloatArray:
    area_mm2, energy_j = (designs[name].to_numpy(dtype=np.float64) for name in ("area_mm2", "energy_per_sample_j"))
    return objective_value(objective, np.asarray(throughput, dtype=np.float64), np.asarray(area_mm2), np.asarray(energy_j))


def _largest(values: FloatArray, mine: NDArray[np.bool_], keys: IntArray, count: int) -> FloatArray:
    largest = np.zeros(count)
    np.maximum.at(largest, keys[mine], values[mine])
    return largest
