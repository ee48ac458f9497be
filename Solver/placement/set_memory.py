"""Which cases of a placement problem with branching layers have a plan within memory, whatever the latencies; compiled."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np

from Solver.placement.cases import Cases
from Solver.placement.kernels import EPSILON, greatest, inner, outer
from Solver.placement.problem import IntArray
from Solver.placement.set_kernels import SetCosts, stages_needed_of_sets
from Solver.placement.set_search import LayerSets

PRECISION = 1e-4  # relative, of the least memory


@outer
def cases_of_sets_that_fit(cases: Cases, sets: LayerSets) -> IntArray:
    """1 for the cases that have a plan within memory, else 0."""
    layers = sets.sizes[-1]
    fits = np.zeros(len(cases.variant), np.int64)
    needed = np.zeros(layers + 1, np.int64)  # stages, by limit on what is in flight; 0 where not known
    last_variant, last_resident = -1, -1.0
    for case in range(len(fits)):
        variant, stages, resident = cases.variant[case], cases.stages[case], cases.resident_bytes[case]
        if stages == 1:
            fits[case] = one_stage_of_sets(sets, variant, resident) <= sets.hbm_bytes * EPSILON
            continue
        in_flight = cases.in_flight[case] if cases.in_flight[case] < stages else layers
        if variant != last_variant or resident != last_resident:
            needed.fill(0)
            last_variant, last_resident = variant, resident
        if needed[in_flight] == 0:
            needed[in_flight] = stages_needed_of_sets(_memory(sets, variant, in_flight, resident, sets.hbm_bytes))
        fits[case] = needed[in_flight] <= stages
    return fits


@outer
def least_memory_of_sets(cases: Cases, sets: LayerSets) -> float:
    """Smallest device memory, within ``PRECISION``, in which some case has a plan; infinity where there are no cases."""
    best = np.inf
    for case in range(len(cases.variant)):
        variant, stages, resident = cases.variant[case], cases.stages[case], cases.resident_bytes[case]
        whole = one_stage_of_sets(sets, variant, resident)
        if stages == 1:
            best = min(best, whole)
            continue
        most_saved = greatest(sets.saved_from[variant], sets.saved_from.shape[1])
        lower, upper = 0.0, min(best, whole + sets.tied[variant] * resident + stages * most_saved)
        middle = upper * (1.0 - PRECISION)  # most cases do not improve on the best so far
        while upper - lower > PRECISION * upper:
            if stages_needed_of_sets(_memory(sets, variant, cases.in_flight[case], resident, middle)) <= stages:
                upper = middle
            else:
                lower = middle
            middle = 0.5 * (lower + upper)
        best = upper
    return best


@inner
def one_stage_of_sets(sets: LayerSets, variant: int, resident: float) -> float:
    """Bytes of all layers together; tied parameters are held once."""
    held = sets.parameters[variant, -1] - sets.tied[variant]
    return held * resident + sets.saved[variant, -1] + greatest(sets.space[variant], sets.space.shape[1])


@inner
def _memory(sets: LayerSets, variant: int, in_flight: int, resident: float, hbm_bytes: float) -> SetCosts:
    """What ``stages_needed_of_sets`` reads, without work and transfers."""
    nothing = np.empty((0, 0))
    return SetCosts(
        sets.first,
        sets.part,
        sets.space[variant],
        sets.sizes,
        sets.parameters[variant],
        sets.parameters[variant],
        sets.saved[variant],
        sets.saved_from[variant],
        nothing,
        nothing,
        in_flight,
        resident,
        hbm_bytes,
    )
