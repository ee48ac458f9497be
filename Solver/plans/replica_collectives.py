"""What collectives over the replicas of many plans take at least, for bounds of iterations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from Estimator.network.collectives import collective_costs_of, rectangle_costs_of
from Estimator.network.costs import MOST_ALGORITHMS
from Estimator.plans.many_rates import replica_levels, replica_parts
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import Machine
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ReplicaCollectives:
    """The collectives of dense parameters of ``plans``, those that overlap with computation left
    out: they may hide. So are those of groups of shards, which gather within one of them alone.

    ZeRO stage 2 scatters gradients after every backward pass, stage 3 gathers weights before every
    pass too (``stage_price.synchronisation``)."""

    plans: UniformPlans
    machine: Machine

    @property
    def once_s(self) -> tuple[FloatArray, FloatArray]:
        """Fixed seconds and seconds per parameter of both collectives of an iteration, of gradients
        and of updated weights, (plans, 2, algorithms) each, as ``PlanBounds`` has them."""
        scatter = CollectiveKind.REDUCE_SCATTER
        reduces_all = self.machine.software.reduces_all
        first = CollectiveKind.ALL_REDUCE if reduces_all else scatter
        reduced = self._costs({0: CollectiveKind.ALL_REDUCE, 1: first})
        gathered = self._costs(dict.fromkeys((1, 2), CollectiveKind.ALL_GATHER))
        fixed_s = np.stack([reduced[0], gathered[0]], axis=1)
        per_byte_s = np.stack([reduced[1], gathered[1]], axis=1)
        return fixed_s, per_byte_s * np.array(self._bytes_each)[:, None]

    @property
    def pass_parameter_s(self) -> FloatArray:
        """Seconds of a micro-batch's passes for each parameter, but for what every collective takes
        whatever it sends; (plans,)."""
        gradient, weight = self._bytes_each
        scattered = self._costs(dict.fromkeys((2, 3), CollectiveKind.REDUCE_SCATTER))
        gathered = self._costs({3: CollectiveKind.ALL_GATHER})
        return gradient * _fastest(*scattered) + 2.0 * weight * _fastest(*gathered)

    @property
    def _bytes_each(self) -> tuple[float, float]:
        """Bytes of a gradient and of a weight that are sent."""
        state = policy_under(self.machine.software, self.plans.shape, 0).state
        return state.gradient, state.weight

    def _costs(self, kinds: dict[int, CollectiveKind]) -> tuple[FloatArray, FloatArray]:
        """Fixed seconds and seconds per byte at least of a collective whose kind the ZeRO stage of
        a plan decides, (plans, algorithms) each; one of 0 seconds where ``kinds`` has none.

        Fixed seconds of algorithms that are not used are infinite."""
        plans, cluster = self.plans, self.machine.cluster
        parts, sizes, strides, left = self._groups
        even, shown = parts.all(axis=0), ~plans.overlap_gradients & (plans.dp > 1)
        shown &= plans.shape.shard_groups == 1
        fixed_s, per_byte_s = np.full((2, len(plans), MOST_ALGORITHMS), np.inf)
        fixed_s[:, 0], per_byte_s[:] = 0.0, 0.0
        for zero, kind in kinds.items():
            for evenly in (True, False):
                here = np.flatnonzero(shown & (plans.zero_stage == zero) & (even == evenly))
                if not len(here):
                    continue
                if evenly:
                    costs = rectangle_costs_of(kind, parts[:, here], cluster)
                else:
                    costs = collective_costs_of(kind, sizes[here], strides[here], cluster)
                algorithms = np.arange(len(costs.fixed_s))
                fixed_s[here] = np.inf
                fixed_s[here[:, None], algorithms] = costs.fixed_s.T
                finite = np.where(np.isfinite(costs.per_byte_s), costs.per_byte_s, 0.0)
                per_byte_s[here[:, None], algorithms] = finite.T * left[here, None]
        return fixed_s, per_byte_s

    @cached_property
    def _groups(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """``replica_parts``; sizes and strides of the groups of replicas alone, where these lie
        unevenly, and what part of a tensor is left for them; (plans,) each."""
        plans, shape = self.plans, self.plans.shape
        parts = replica_parts(plans, self.machine.cluster)
        # Context-parallel devices and replicas are neighbours
        joined = plans.layouts.replica_strides == shape.inner_devices
        both_sizes, both_strides = replica_levels(plans)
        sizes: IntArray = np.where(joined, both_sizes[0], both_sizes[1])
        strides: IntArray = np.where(joined, both_strides[0], both_strides[1])
        left: FloatArray = np.where(parts.all(axis=0) | joined, 1.0, 1.0 / shape.sequence_devices)
        return parts, sizes, strides, left


def _fastest(fixed_s: FloatArray, per_byte_s: FloatArray) -> FloatArray:
    """The least seconds per byte of the algorithms that are used, (plans,)."""
    fastest_s: FloatArray = np.where(np.isfinite(fixed_s), per_byte_s, np.inf).min(axis=1)
    return fastest_s
