"""The plans a search on given hardware compares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from Estimator.network.cluster import Cluster
from GraphExtractor.graph import Recompute
from Plans.plan import TrainingPlan
from Solver.placement.problem import GroupOrder


@dataclass(frozen=True)
class PlanSpace:
    """What is searched; ``base`` holds everything that is not (global batch, precision, optimizer, attention, cp).

    All ``devices`` are used: tp · cp · pp · dp is their number, and ep divides dp · cp. Interleaved plans have equal chunks, as
    Megatron-LM requires; the stages of the others may differ.
    """

    devices: int
    base: TrainingPlan
    sequence_length: int
    tp_widths: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    sequence_parallel: tuple[bool, ...]
    interleave: tuple[int, ...] | None  # None: whatever divides the blocks
    zero_stages: tuple[int, ...]
    ep_degrees: tuple[int, ...] = (1,)

    def shapes(self) -> Iterator[TrainingPlan]:
        """Plans that differ in what decides the seconds of a layer: tp, ep, micro-batch, recomputation, sequence parallelism."""
        for tp, ep, size, recompute in product(self.tp_widths, self.ep_degrees, self.micro_batch_sizes, self.recompute):
            shape = replace(self.base, tp=tp, ep=ep, micro_batch_size=size, recompute=recompute)
            if ep > 1 and self.devices % (tp * shape.cp * ep // math.gcd(ep, shape.cp)):
                continue
            for sequence in self.sequence_parallel if tp > 1 else (False,):
                if not (sequence and self.sequence_length % tp):
                    yield replace(shape, sequence_parallel=sequence)

    def plans(self, shape: TrainingPlan, blocks: int, cluster: Cluster) -> Iterator[TrainingPlan]:
        """Plans of one shape for a model of ``blocks`` repeated layers between embedding and head."""
        if self.devices % (shape.tp * shape.cp):
            return
        groups = self.devices // (shape.tp * shape.cp)
        orders = tuple(GroupOrder) if len(cluster.tiers) > 1 else (GroupOrder.DATA_INNER,)
        for pp in range(1, min(groups, max(blocks, 1)) + 1):
            dp = groups // pp
            if groups % pp or dp * shape.cp % shape.ep or dp * shape.micro_batch_size > shape.global_batch_size:
                continue
            for zero, order in product(self.zero_stages, orders):
                if (zero and dp * shape.cp == 1) or (order is not orders[0] and (pp == 1 or dp == 1)):
                    continue
                plan = replace(shape, pp=pp, dp=dp, zero_stage=zero, group_order=order)
                yield from self._interleaved(plan, blocks)

    def _interleaved(self, plan: TrainingPlan, blocks: int) -> Iterator[TrainingPlan]:
        for chunks in self.interleave or range(1, blocks // plan.pp + 1):
            if chunks == 1:
                yield plan
            elif plan.pp > 1 and blocks % (plan.pp * chunks) == 0 and plan.micro_batches % plan.pp == 0:
                yield replace(plan, interleave=chunks)
