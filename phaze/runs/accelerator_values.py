"""The design points of a finished search by accelerator: what each is known to reach, and what it
cannot exceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import AcceleratorSet, Variant
from Estimator.chips.axes import COLUMNS, VARIED
from phaze.runs.finished_run import FinishedRun
from phaze.settings.config_files import split_weight
from phaze_common.choices import Combine, Objective
from Solver.chip_metrics import ChipMetrics
from Solver.combination import Combination

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AcceleratorValues:
    """The objective on each accelerator, shape (accelerators,), of all models together, each with
    its best plan.

    ``reach`` is what no plan exceeds (0: some model fits with none), ``found`` that of the best
    plans evaluated (0: there are none).
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
    varied = [name for name in VARIED if name in designs]
    grouped = designs.groupby([*COLUMNS, *varied], sort=False, dropna=False)
    keys: IntArray = np.asarray(grouped.ngroup(), dtype=np.int64)
    count = int(keys.max()) + 1 if len(keys) else 0
    first = np.unique(keys, return_index=True)[1]
    accelerators = _accelerators(designs.iloc[first])
    metrics = None if "value" in designs else _metrics(run, accelerators).some(keys)
    reach, found = dict[str, FloatArray](), dict[str, FloatArray]()
    feasible = (designs["status"] != "infeasible").to_numpy()
    evaluated = (designs["status"] == "evaluated").to_numpy()
    model = designs["model"].astype(str).to_numpy()
    for name in combination.weights:
        mine = (model == name) & feasible
        plan = None if run.result.best is None else run.result.best.models.get(name)
        tokens = 1 if plan is None else plan.sequence_length
        reach[name], found[name] = (
            _largest(_objective(objective, metrics, designs, which, tokens), rows, keys, count)
            for which, rows in (("_bound", mine), ("", mine & evaluated))
        )
    return AcceleratorValues(
        accelerators, _together(combination, reach), _together(combination, found)
    )


def _accelerators(rows: pd.DataFrame) -> AcceleratorSet:
    """The accelerators of ``rows`` of the table of designs."""
    columns = {name: rows[name].to_numpy() for name in COLUMNS}
    if VARIED[0] not in rows:
        return AcceleratorSet(**columns)  # type: ignore[arg-type]
    clocks = [None if np.isnan(clock) else clock for clock in rows["frequency_hz"].astype(float)]
    links = rows["links"] if "links" in rows else [None] * len(rows)
    own = [Variant(*each) for each in zip(rows["memory_system"], clocks, links, strict=True)]
    variants = tuple(dict.fromkeys(own))
    return AcceleratorSet(
        **columns, variant=np.array([variants.index(each) for each in own]), variants=variants
    )


def _metrics(run: FinishedRun, accelerators: AcceleratorSet) -> ChipMetrics:
    records = run.result.hardware.records
    return ChipMetrics.of(accelerators, records.space, np.ones(len(accelerators)), records.cluster)


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


def _objective(
    objective: Objective,
    metrics: ChipMetrics | None,
    designs: pd.DataFrame,
    which: str,
    tokens: int,
) -> FloatArray:
    """The objective of every row of ``designs`` or, ``which`` says so, its bound: stated (no
    ``metrics``), or of throughputs."""
    if metrics is None:
        return designs[f"value{which}"].to_numpy(dtype=np.float64)
    throughput = designs[f"throughput{which}_samples_per_s"].to_numpy(dtype=np.float64)
    dynamic_j = designs["energy_per_sample_j"].to_numpy(dtype=np.float64)
    return metrics.value(objective, throughput, dynamic_j, tokens)


def _largest(values: FloatArray, mine: NDArray[np.bool_], keys: IntArray, count: int) -> FloatArray:
    largest = np.zeros(count)
    np.maximum.at(largest, keys[mine], values[mine])
    return largest
