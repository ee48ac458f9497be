"""The plans a search compares: the axes, the shapes that decide what layers cost, and the plans of a shape as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from GraphExtractor.graph import Recompute
from Plans.plan import GroupOrder, TrainingPlan

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class PlanSpace:
    """What is searched; ``base`` holds everything that is not (global batch, precision, optimizer, attention, sequence length).

    tp · cp · pp · dp is the number of ``devices``, or at most that unless ``use_all_devices``; ep divides dp · cp. Interleaved
    plans have equal chunks, as Megatron-LM requires; the stages of the others may differ. None stands for every value there is.
    """

    devices: int
    use_all_devices: bool
    base: TrainingPlan
    sequence_length: int
    tp_widths: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    sequence_parallel: tuple[bool, ...] = (False,)
    cp_degrees: tuple[int, ...] = (1,)
    ep_degrees: tuple[int, ...] = (1,)
    pp_degrees: tuple[int, ...] | None = None
    dp_degrees: tuple[int, ...] | None = None
    interleave: tuple[int, ...] | None = (1,)
    zero_stages: tuple[int, ...] = (0,)
    group_orders: tuple[GroupOrder, ...] = tuple(GroupOrder)
    overlap_gradients: tuple[bool | None, ...] = (None,)
    overlap_tensor: tuple[bool | None, ...] = (None,)

    def shapes(self) -> Iterator[TrainingPlan]:
        """Plans that differ in what decides the seconds of a layer."""
        axes = product(self.tp_widths, self.cp_degrees, self.ep_degrees, self.micro_batch_sizes, self.recompute)
        for tp, cp, ep, size, recompute in axes:
            shape = replace(self.base, tp=tp, cp=cp, ep=ep, micro_batch_size=size, recompute=recompute)
            group = tp * cp * (ep // math.gcd(ep, cp))
            if group > self.devices or (self.use_all_devices and self.devices % group):
                continue
            for sequence in self.sequence_parallel if tp > 1 else (False,):
                if sequence and self.sequence_length % tp:
                    continue
                for overlap in self.overlap_tensor if sequence else (None,):
                    yield replace(shape, sequence_parallel=sequence, overlap_tensor=overlap)

    def requirements(self, layers: int | None = None) -> str:
        """What plans of the space must fulfil, in words, for refusals where none does; ``layers`` of the model."""
        devices = f"{'exactly' if self.use_all_devices else 'at most'} {self.devices:,} devices"
        number = "" if layers is None else f"{layers} "
        rules = [f"tp x cp x pp x dp must be {devices}", f"pp at most the {number}layers of the model"]
        if self.ep_degrees != (1,):
            rules.append("ep must divide dp x cp")
        if self.interleave is not None and 1 not in self.interleave:
            rules.append("pp x interleave must divide the blocks, and pp, at least 2, the micro-batches of a pipeline")
        return "; ".join(rules)

    def plans(self, shape: TrainingPlan, layers: int, cluster: Cluster) -> PlanArrays:
        """Plans of one shape for a model of ``layers`` layers, embedding and head among them."""
        groups = self.devices // (shape.tp * shape.cp)
        most_replicas = min(groups, shape.global_batch_size // shape.micro_batch_size)
        alike = len(cluster.tiers) == 1 and shape.ep == 1
        columns: list[tuple[int, ...]] = []
        for pp in self.pp_degrees or range(1, min(groups, layers) + 1):
            if pp > min(groups, layers) or (self.use_all_devices and self.devices % (shape.tp * shape.cp * pp)):
                continue
            every = self._replicas(groups // pp, most_replicas)
            every = every[(every * shape.cp) % shape.ep == 0]
            for zero, overlap in product(self.zero_stages, range(len(self.overlap_gradients))):
                degrees = every if zero else self._least_degrees(every, shape) if alike else every
                for order, chunks in product(range(len(self.group_orders)), self._chunks(pp, layers)):
                    if order and len(cluster.tiers) == 1 and shape.cp == 1:  # else replicas and context-parallel groups may part
                        continue
                    columns += [
                        (pp, dp, zero, order, chunks, overlap)
                        for dp in degrees.tolist()
                        if not (zero > min(self.zero_stages) and dp * shape.cp == 1)
                        and not (order and (pp == 1 or dp == 1))
                        and not (overlap and dp * shape.cp == 1)
                        and not (chunks > 1 and _micro_batches(shape, dp) % pp)
                    ]
        table = np.array(columns, dtype=np.int64).reshape(-1, 6)
        return PlanArrays(self, shape, *(np.ascontiguousarray(column) for column in table.T))

    def _replicas(self, room: int, most: int) -> IntArray:
        """Data parallel degrees where there is room for so many replicas."""
        if self.dp_degrees is not None:
            allowed = [dp for dp in self.dp_degrees if dp <= min(room, most) and not (self.use_all_devices and dp != room)]
            return np.array(allowed, dtype=np.int64)
        if self.use_all_devices:
            return np.array([room] if room <= most else [], dtype=np.int64)
        return np.arange(1, min(room, most) + 1)

    def _least_degrees(self, degrees: IntArray, shape: TrainingPlan) -> IntArray:
        """Of degrees with as many micro-batches the least: more replicas only slow the gradients down (one tier, no ZeRO)."""
        if self.dp_degrees is not None:
            return degrees
        micro_batches = -(-shape.global_batch_size // (shape.micro_batch_size * degrees))
        _, first = np.unique(micro_batches, return_index=True)
        return np.sort(degrees[first])

    def _chunks(self, pp: int, layers: int) -> tuple[int, ...]:
        """Chunks per stage for which the blocks between embedding and head divide evenly."""
        blocks = layers - 2
        wanted = self.interleave or range(1, max(blocks // pp, 1) + 1)
        return tuple(chunks for chunks in wanted if chunks == 1 or (pp > 1 and blocks > 0 and blocks % (pp * chunks) == 0))


def _micro_batches(shape: TrainingPlan, dp: int) -> int:
    return -(-shape.global_batch_size // (shape.micro_batch_size * dp))


@dataclass(frozen=True, eq=False)
class PlanArrays:
    """Plans of ``shape``: arrays of shape (plans,). ``order`` and ``overlap`` count the values of their axes in ``space``."""

    space: PlanSpace
    shape: TrainingPlan
    pp: IntArray
    dp: IntArray
    zero_stage: IntArray
    order: IntArray
    interleave: IntArray
    overlap: IntArray

    def __len__(self) -> int:
        return len(self.pp)

    @property
    def micro_batches(self) -> IntArray:
        """Micro-batches per pipeline."""
        count: IntArray = -(-self.shape.global_batch_size // (self.shape.micro_batch_size * self.dp))
        return count

    def plan(self, index: int) -> TrainingPlan:
        """One of them as a record."""
        return replace(
            self.shape,
            pp=int(self.pp[index]),
            dp=int(self.dp[index]),
            zero_stage=int(self.zero_stage[index]),
            group_order=self.space.group_orders[self.order[index]],
            interleave=int(self.interleave[index]),
            overlap_gradients=self.space.overlap_gradients[self.overlap[index]],
        )
