"""Seconds that no cut of the layers can beat, for many plans of one shape at once: what makes pruning a plan safe."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Plans.compiled import outer
from Solver.cuts.stage_graph import Stages

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class PlanBounds(NamedTuple):
    """What bounds need of every plan, arrays of shape (plans,) unless said otherwise (see ``ShapePlans``)."""

    pp: IntArray
    micro_batches: IntArray
    least_messages_s: FloatArray  # over one boundary, both ways
    least_one_way_s: FloatArray  # over one boundary, whichever way is shorter
    least_step_s: FloatArray
    tied_s: FloatArray
    sync_fixed_s: FloatArray  # (plans, 2, algorithms)
    sync_per_parameter_s: FloatArray  # (plans, 2, algorithms)


@outer
def plan_bounds_s(
    bounds: PlanBounds,
    stages: Stages,
    stage_s: FloatArray,
    least_load_s: FloatArray,
    parameters: FloatArray,
    tied_parameters: float,
    skip: NDArray[np.bool_],
    seconds: FloatArray,
) -> None:
    """Fill ``seconds`` (plans,) for one configuration where it does not ``skip``.

    ``stage_s`` (edges,) are the loads of stages, ``least_load_s`` (most stages, nodes) what the largest load of j + 1 stages is
    at least, ``parameters`` (edges,) dense ones. With the first stage given, the largest load V is at least its own or that of
    the best cut of the rest, and the total W is known; wherever the stage with the largest load is, the iteration takes at
    least W + (m-1) V less what it does not wait for, which is at most the imbalance pp · V - W, and at most half a load for each
    stage behind it (``stage_bound_s``). The first stage synchronises its gradients after everything.
    """
    everything = len(stages.first) - 2
    whole_s = stage_s[stages.to_end[everything]]
    for plan in range(len(seconds)):
        if skip[plan]:
            continue
        pp, more = bounds.pp[plan], bounds.micro_batches[plan] - 1
        link_s = bounds.least_messages_s[plan]
        best_s = np.inf
        for edge in range(stages.first[everything], stages.first[everything + 1]):
            part = stages.part[edge]
            if (part == 0) != (pp == 1) or stages.depth[part] < pp - 1:
                continue
            dense = parameters[edge] - (tied_parameters if pp == 1 else 0.0)
            after_s = 0.0
            for collective in range(2 if dense > 0.0 else 0):  # nothing is sent where there are no parameters
                fastest_s = np.inf
                for algorithm in range(bounds.sync_fixed_s.shape[2]):
                    each_s = (
                        bounds.sync_fixed_s[plan, collective, algorithm]
                        + bounds.sync_per_parameter_s[plan, collective, algorithm] * dense
                    )
                    fastest_s = min(fastest_s, each_s)
                after_s += fastest_s
            if pp == 1:
                best_s = min(best_s, (more + 1) * whole_s + after_s)
                continue
            load_s = max(stage_s[edge], least_load_s[pp - 2, part]) + bounds.least_one_way_s[plan]
            total_s = whole_s + (pp - 1) * link_s
            unwaited_s = 0.5 * min(pp - 1, more) * load_s
            if more >= pp:  # else more imbalance could make up for a larger load
                unwaited_s = min(unwaited_s, max(pp * load_s - total_s, 0.0))
            best_s = min(best_s, total_s + more * load_s - unwaited_s + after_s + bounds.tied_s[plan])
        seconds[plan] = best_s + bounds.least_step_s[plan]
