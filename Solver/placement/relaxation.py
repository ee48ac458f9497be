"""Lower bounds on all plans of a branching layer graph, whatever its sets of layers: only what any pipeline must bear.

The order of the layers is forgotten. With S stages the largest load is at least the mean, and at least what the pigeonhole
principle says: of the k·S + 1 longest layers some stage has k + 1, so at least the k + 1 shortest of those; so are parameter
sums. Each of the S - 1 cuts carries one tensor at least if all layers are joined. Memory is filled as if layers were fluid.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Solver.placement.cases import Cases
from Solver.placement.kernels import EPSILON, inner, outer
from Solver.placement.problem import FloatArray, IntArray
from Solver.placement.search_kernels import line_seconds


class Relaxation(NamedTuple):
    """What all accelerators share; the cases are those that fit as a fluid."""

    parameters: FloatArray  # (variants,): of all layers together
    tied: FloatArray  # (variants,)
    least_held: FloatArray  # (cases,)
    least_transfers_s: FloatArray  # (cases,)


@outer
def least_largest_loads(seconds: FloatArray, most: int) -> FloatArray:
    """What the largest of S sums cannot be below, for S up to ``most`` (index 0 unused), if every value is in one of them."""
    prefix = np.zeros(len(seconds) + 1)
    prefix[1:] = np.cumsum(np.sort(seconds)[::-1])
    least = np.zeros(most + 1)
    for stages in range(1, most + 1):
        least[stages] = prefix[-1] / stages
        for together in range((len(seconds) - 1) // stages + 1):
            last = together * stages + 1
            least[stages] = max(least[stages], prefix[last] - prefix[last - together - 1])
    return least


@outer
def fluid_stages_needed(
    parameters: FloatArray, saved: FloatArray, workspace: FloatArray, in_flight: int, resident: float, hbm_bytes: float
) -> int:
    """No fewer stages (two or more) have the memory for these layers; more than there are layers where none do.

    Layers are split at will over stages that hold as many micro-batches as their position from the end, and what is saved
    most in proportion lies in the last ones: swapping it with anything before it that fills the same memory frees some.
    """
    layers, room = len(parameters), hbm_bytes * EPSILON
    alone = parameters * resident + saved + workspace
    if alone.max() > room:
        return layers + 1
    room -= workspace.min()
    total = parameters * resident + saved
    share = np.where(total > 0.0, saved / np.where(total > 0.0, total, 1.0), 0.0)
    position, left = 1, room
    for layer in np.argsort(share)[::-1]:
        rest = 1.0
        while True:
            needed = rest * (parameters[layer] * resident + min(position, in_flight) * saved[layer])
            if needed <= left:
                left -= needed
                break
            if position == layers:
                return layers + 1
            rest -= rest * left / needed
            position, left = position + 1, room
    return max(position, 2)


@inner
def _bound(cases: Cases, relaxation: Relaxation, case: int, layers: int, work: float, floor: float) -> float:
    variant, stages = cases.variant[case], cases.stages[case]
    held = relaxation.parameters[variant] - (relaxation.tied[variant] if stages == 1 else 0.0)
    busy = work + cases.gather_s[case] * held + cases.gather_fixed_s[case] * layers + relaxation.least_transfers_s[case]
    return busy + line_seconds(cases, case, max(floor, busy / stages), relaxation.least_held[case])[0]


@outer
def relaxed_rows(cases: Cases, relaxation: Relaxation, seconds: FloatArray, sequence: IntArray, bound_s: FloatArray) -> None:
    """Fill ``bound_s`` for every accelerator of ``seconds`` (accelerators, variants, distinct layers)."""
    variants = seconds.shape[1]
    most = cases.stages.max() if len(cases.stages) else 0
    work, floors = np.empty(variants), np.empty((variants, most + 1))
    for row in range(len(seconds)):
        for variant in range(variants):
            layers = seconds[row, variant][sequence]
            work[variant], floors[variant] = layers.sum(), least_largest_loads(layers, most)
        bound_s[row] = np.inf
        for case in range(len(cases.variant)):
            variant = cases.variant[case]
            floor = floors[variant, cases.stages[case]]
            bound_s[row] = min(bound_s[row], _bound(cases, relaxation, case, len(sequence), work[variant], floor))
