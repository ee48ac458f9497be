"""Shapes of plans that were pruned by a bound, without listing their plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray


@dataclass(frozen=True, eq=False)
class PrunedShapes:
    """Shapes that need no look: no plan of shape i takes less than ``least_s[i]``, (shapes,)."""

    plans: tuple[UniformPlan, ...]
    least_s: FloatArray

    def __len__(self) -> int:
        return len(self.plans)

    def with_micro_batch_size(self, size: int) -> PrunedShapes:
        """Those of one micro-batch size."""
        places = [place for place, plan in enumerate(self.plans) if plan.micro_batch_size == size]
        return PrunedShapes(tuple(self.plans[place] for place in places), self.least_s[places])


NONE_PRUNED = PrunedShapes((), np.empty(0))
