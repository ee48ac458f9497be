"""Which of thousands of shapes a search looked at, kept with its design points: the same search
again needs no bounds of the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import FloatArray, IntArray
from phaze_common.arrays import load_arrays, store_arrays
from phaze_common.files import content_key, load_or_set_aside
from Solver.designs.costs import PricedShapes, Shape
from Solver.designs.shape_pruning import remaining_shapes
from Solver.plans.shape_bounds import PrunedShapes


@dataclass(frozen=True, eq=False)
class KeptShapes:
    """Numbers of shapes to look at, (shapes,), and of pruned ones with seconds that no plan of
    theirs is below, (pruned,)."""

    shapes: IntArray
    pruned: IntArray
    least_s: FloatArray


def kept_shapes(priced: PricedShapes) -> tuple[list[Shape], PrunedShapes] | None:
    """``remaining_shapes``, as an earlier run of the same search found them or kept from now on."""
    context, plans = priced.context, priced.plans
    folder = context.stores.points
    if folder is None:
        return remaining_shapes(priced)
    asked = priced.model.space, sorted(context.problem.memory_bytes), priced.graph_contents
    path = folder / f"shapes-{content_key(context.pricing, *asked)}.npz"
    kept = load_or_set_aside(path, lambda file: load_arrays(KeptShapes, file))
    if kept is not None:
        found = [priced.shape(number) for number in kept.shapes.tolist()]
        pruned = tuple(plans[number] for number in kept.pruned.tolist())
        return [shape for shape in found if shape is not None], PrunedShapes(pruned, kept.least_s)
    remaining = remaining_shapes(priced)
    if remaining is not None:
        shapes, pruned_shapes = remaining
        numbers = {plan: number for number, plan in enumerate(plans)}
        store_arrays(
            path,
            KeptShapes(
                np.array([numbers[shape.plan] for shape in shapes], np.int64),
                np.array([numbers[plan] for plan in pruned_shapes.plans], np.int64),
                pruned_shapes.least_s,
            ),
        )
    return remaining
