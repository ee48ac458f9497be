"""What plans have in common of tables with sparse gradients, for bounds of their time and
memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from Estimator.plans.stage_totals import StageSizes
from Estimator.plans.uniform_plans import UniformPlans
from phaze_common.array_types import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class TablesOfStages:
    """The sparse tables of stages of ``sizes`` under ``plans`` of one shape."""

    sizes: StageSizes
    plans: UniformPlans

    @cached_property
    def used(self) -> BoolArray:
        """Plans with sparse gradients (``stage_price.sparse_rows``), shape (plans,)."""
        used: BoolArray = (self.plans.sharding == 0) & bool(self.sizes.tables.any())
        return used

    @cached_property
    def lookups(self) -> FloatArray:
        """Micro-batches of all replicas, each of which reads rows of its own, shape (plans,)."""
        lookups: FloatArray = (
            self.plans.micro_batches * self.plans.dp * self.plans.shape.sequence_devices
        ).astype(np.float64)
        return lookups

    @cached_property
    def parameters(self) -> FloatArray:
        """Those of the tables of every stage, shape (kinds,)."""
        parameters: FloatArray = self.sizes.tables @ (
            self.sizes.table_sizes[:, 0] * self.sizes.table_sizes[:, 2]
        )
        return parameters

    @cached_property
    def dense_parameters(self) -> FloatArray:
        """Parameters, but for experts, whose gradients are dense under every plan, (kinds,)."""
        dense = self.sizes.parameters - self.sizes.expert_parameters
        return dense - self.parameters if self.used.any() else dense

    @cached_property
    def stepped_parameters(self) -> FloatArray:
        """Parameters of every stage that a step touches under every plan, shape (kinds,)."""
        if not self.used.any():
            return self.sizes.parameters
        least = self.lookups[self.used].min()
        return self.sizes.parameters - self.parameters + self._read(self.sizes.tables, least)

    def unread_parameters(self, stage: int) -> FloatArray:
        """Parameters of the tables of ``stage`` for which there is no gradient, shape (plans,)."""
        unread = self.parameters[stage] - self._read(
            self.sizes.tables[stage], self.lookups[:, None]
        )
        return np.where(self.used, unread, 0.0)

    def _read(self, tables: FloatArray, lookups: FloatArray) -> FloatArray:
        """Parameters in the rows of ``tables`` (..., kinds) that micro-batches read at most."""
        rows, read, width = self.sizes.table_sizes.T
        parameters: FloatArray = (tables * np.minimum(rows, read * lookups) * width).sum(axis=-1)
        return parameters
