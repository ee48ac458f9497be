"""Accelerators whose layer schedules are not proven shortest: only those that could still be the best are worth a proof.

If no makespan of an accelerator can be shortened by more than a factor, neither can its iterations, of which layers are a part.
An accelerator that is worse than another one even so needs no proof for the best to be proven.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from GraphExtractor.graph import ModelGraph
from Solver.placement import lower_bounds_s, place_batch
from Solver.placement.problem import FloatArray
from Solver.results import Objective
from Solver.search.inputs import ModelInputs, placement_problem, scheduled_inputs, variant_energies_j
from Solver.search.layer_times import refined
from Solver.search.points import objective_value, single_variant
from Solver.search.run import Run
from Solver.search.variants import batch_times

logger = logging.getLogger(__name__)
INCUMBENTS = 64  # accelerators placed exactly to know what has to be beaten


def model_inputs(run: Run, graphs: tuple[ModelGraph, ...]) -> ModelInputs:
    """Layer times of ``graphs``, all accelerators that could be the best scheduled thoroughly."""
    inputs = scheduled_inputs(run, graphs)
    rows = _doubtful(run, inputs)
    if not len(rows):
        return inputs
    with run.progress.phase(
        f"proofs of {len(rows)} accelerators for {inputs.graphs[0].key.label}", len(inputs.graphs)
    ) as advance:
        times = []
        for graph, each in zip(inputs.graphs, inputs.times, strict=True):
            times.append(refined(graph, inputs.table, run.hardware.accelerators, run.collective_s, run.solver, each, rows))
            advance(1)
    better = replace(inputs, times=tuple(times))
    doubtful = len(_doubtful(run, better))
    if doubtful:
        logger.warning("%d accelerators have unproven schedules and might be the best for %s", doubtful, inputs.model)
    return replace(better, doubtful=doubtful)


def _doubtful(run: Run, inputs: ModelInputs) -> NDArray[np.int64]:
    """Unproven accelerators that could be the best of some HBM size; all unproven ones where several models decide together."""
    excess = np.max([times.excess for times in inputs.times], axis=0)
    could_be_best = np.zeros(len(excess), dtype=bool)
    if not (excess > 1.0).any():
        return np.flatnonzero(could_be_best)
    if len(run.study.models) > 1 or run.study.objective is Objective.THROUGHPUT_PER_JOULE:
        return np.flatnonzero(excess > 1.0)
    for hbm_bytes in run.study.hbm_sizes_bytes:
        could_be_best |= _could_be_best(run, inputs, hbm_bytes, excess)
    return np.flatnonzero((excess > 1.0) & could_be_best)


def _could_be_best(run: Run, inputs: ModelInputs, hbm_bytes: int, excess: FloatArray) -> NDArray[np.bool_]:
    """Whether each accelerator would reach the best known one if its iteration took ``excess`` times less."""
    study = run.study
    problem = placement_problem(run, inputs, hbm_bytes)
    times = batch_times(inputs.times, study.recompute, inputs.graphs[0].sequence)
    area_mm2, energy_j = run.hardware.accelerators.area_mm2, variant_energies_j(run, inputs)
    reach, best = np.zeros(len(excess)), 0.0
    for index in range(len(problem.variants)):
        single = single_variant(problem, times, index)
        optimistic = objective_value(
            study.objective, study.global_batch_size / lower_bounds_s(*single), area_mm2, energy_j[:, index]
        )
        top = np.argsort(-optimistic)[:INCUMBENTS]
        placed_s = place_batch(*single, top).iteration_s
        known = objective_value(study.objective, study.global_batch_size / placed_s, area_mm2[top], energy_j[top, index])
        reach, best = np.maximum(reach, optimistic * excess), max(best, float(known.max()))
    could: NDArray[np.bool_] = (reach >= best) & (reach > 0.0)
    return could
