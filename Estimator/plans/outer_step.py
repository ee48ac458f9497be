"""The outer step of DiLoCo (Douillard et al. 2023): sites train by plans of their own, and every so
many iterations take one step together along the mean of how far they got.

Every device sends its part of the parameters' change around a ring of the sites, through what its
site has of the network; all devices of a site share that. The weights of the last outer step and
the momentum of the outer optimizer (Nesterov's) stay in fp32 on the device, divided as the inner
optimizer's state is. An iteration bears its part of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray, IntArray

BITS = 8
STATE_BYTES = 8.0  # of a parameter: weights of the last outer step, and momentum
# read: weights, those of the last outer step, momentum; written: all three
STEP_BYTES = 24.0


@dataclass(frozen=True)
class OuterStep:
    """Seconds are per parameter of a device, and of an iteration."""

    sites: int
    steps: int
    site_bytes_per_s: float
    bytes_each: float
    shard_groups: int

    @classmethod
    def of(cls, plan: UniformPlan) -> OuterStep | None:
        """That of a plan; None where there is one site."""
        if plan.sites == 1:
            return None
        return cls(
            plan.sites,
            plan.outer_steps,
            plan.site_gbit_per_s * 1e9 / BITS,
            plan.outer_dtype.bytes,
            plan.shard_groups,
        )

    def exchange_s(self, copies: IntArray, devices: IntArray) -> FloatArray:
        """Of the exchange, where ``copies`` of the ``devices`` of a site have the parameter."""
        sent = 2.0 * (self.sites - 1) / self.sites * self.bytes_each
        each_s: FloatArray = np.asarray(
            sent * devices / (self.site_bytes_per_s * copies * self.shard_groups)
        )
        return each_s / self.steps
