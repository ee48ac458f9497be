"""What more memory would bring on a device that exists, its plan chosen anew.

Of other resources (bandwidths, peaks, devices) nothing is said: each would have the layers of all
shapes priced again and all plans compared under them, several times, which takes as long as several
searches. A sweep over edited device files asks it.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from Solver.designs.points import PointGroup
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.fastest_plans import FastestPlans, PlansWithValues
from Solver.results import DesignPoint


def value_with_memory(groups: Sequence[PointGroup], best: DesignPoint, memory_bytes: int) -> float:
    """The most samples/s with as much memory, at least that of ``best``, the optimum of one model.

    ``groups`` are those of its search.
    """
    (plan,) = best.models.values()
    fastest = FastestPlans([1])
    shapes = [
        shape
        for group in groups
        if group.key.memory_bytes == best.hbm_bytes
        for shape in group.shapes
    ]
    shapes.sort(
        key=lambda shape: (
            shape.plan.micro_batch_size != plan.micro_batch_size or shape.plan.tp != plan.tp
        )
    )
    fastest.expect([0], plan.time_per_batch_s)
    fastest.search(
        (
            PlansWithValues(
                partial(ConfigurationPlans, part.plans, part.costs, 0, float(memory_bytes)),
                np.zeros((1, len(part.plans)), np.int64),
                1.0,
            )
            for shape in shapes
            for part in shape.parts
        ),
        lambda _: None,
    )
    (found,) = fastest.of_axis(0)
    return groups[0].batch_samples / found.iteration_s
