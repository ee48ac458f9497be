"""What a stage can be: degrees, sharding and recomputation that a space of plans allows, by the
rows of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import Recompute
from phaze_common.choices import ExpertOverlap, GroupOrder
from Solver.plans.space import PlanSpace, in_groups


@dataclass(frozen=True)
class StageOption:
    """``degrees`` of a stage. Of its layers none need be recomputed where ``partly``, else all are
    as ``degrees`` say."""

    degrees: UniformPlan
    partly: bool

    @property
    def devices(self) -> int:
        """Devices of the stage."""
        return self.degrees.devices


def options_by_rows(space: PlanSpace) -> dict[int, tuple[StageOption, ...]]:
    """All stages that a plan of ``space`` can have, by the rows of a micro-batch on all replicas,
    which its stages share.

    Whatever degrees the space names for whole plans a stage may have of its own; groups lie over
    consecutive devices. A stage that keeps activations in host memory recomputes all of its layers
    or none.
    """
    found: dict[int, dict[StageOption, None]] = {}
    for option in _options(space):
        found.setdefault(option.degrees.micro_batch_size * option.degrees.dp, {})[option] = None
    return {rows: tuple(found[rows]) for rows in sorted(found)}


def _options(space: PlanSpace) -> Iterator[StageOption]:
    nearby = replace(space, use_all_devices=False, group_orders=(GroupOrder.DATA_INNER,))
    partly = Recompute.NONE in space.recompute
    modes = tuple(mode for mode in space.recompute if mode is not Recompute.NONE)
    for shape in nearby.shapes():
        # where activations move to the host, a layer recomputed may be faster: it moves less
        moves = shape.offload.activations > 0.0
        if partly and modes and not moves and shape.recompute is Recompute.NONE:
            continue  # which the other modes with no layer recomputed are
        room = min(
            space.devices // shape.inner_devices,
            space.base.global_batch_size // shape.micro_batch_size,
        )
        for dp in space.dp_degrees or range(1, room + 1):
            if dp > room or shape.expert_devices(dp * shape.cp) % shape.ep:
                continue
            left = space.base.global_batch_size % (shape.micro_batch_size * dp)
            if space.whole_micro_batches and left:
                continue
            zeros, overlaps = space.zero_stages, space.overlap_gradients
            if dp * shape.sequence_devices == 1:
                zeros, overlaps = (min(zeros),), overlaps[:1]
            for zero, overlap in product(zeros, overlaps):
                if not in_groups(shape, np.array([dp]), zero)[0]:
                    continue
                degrees = replace(
                    shape,
                    dp=dp,
                    zero_stage=zero,
                    overlap_gradients=overlap,
                    overlap_experts=_beside_exchanges(shape),
                )
                some = partly and not moves and degrees.recompute is not Recompute.NONE
                yield StageOption(degrees, some)


def _beside_exchanges(shape: UniformPlan) -> ExpertOverlap | None:
    """What runs beside exchanges with experts: never another micro-batch, as how many passes have
    none beside them depends on the number of stages, of which an option knows nothing."""
    beside = shape.overlap_experts
    of_stages = shape.ep == 1 or beside in (ExpertOverlap.NONE, ExpertOverlap.SHARED)
    return beside if of_stages else ExpertOverlap.NONE
