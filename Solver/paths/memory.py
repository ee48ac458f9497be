"""The least memory that the fullest stage of a pipeline needs, over all cuts: no hardware's speed
decides it."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np

from Estimator.plans.compiled import outer
from phaze_common.arrays import FloatArray
from Solver.paths.stage_graph import Stages


@outer
def least_fullest_bytes(
    stages: Stages, fixed_bytes: FloatArray, saved_bytes: FloatArray, pp: int, micro_batches: int
) -> float:
    """Bytes of the fullest of ``pp`` stages in the cut where they are fewest; infinite where there
    is no such cut.

    A stage holds ``fixed_bytes`` (edges,) and, of as many micro-batches as are in flight there,
    ``saved_bytes`` (edges,) each.
    """
    everything = len(stages.first) - 2
    least = np.full((pp, everything + 1), np.inf)
    for behind in range(pp):
        held = min(behind + 1, micro_batches)
        for node in range(everything + 1):
            if (node == everything) != (behind == pp - 1) or stages.depth[node] <= behind:
                continue
            if behind == 0:
                edge = stages.to_end[node]
                if edge >= 0:
                    least[0, node] = fixed_bytes[edge] + held * saved_bytes[edge]
                continue
            for edge in range(stages.first[node + 1] - 1, stages.first[node] - 1, -1):
                here = fixed_bytes[edge] + held * saved_bytes[edge]
                if here < least[behind, node]:
                    least[behind, node] = min(
                        least[behind, node], max(here, least[behind - 1, stages.part[edge]])
                    )
    return least[pp - 1, everything]
