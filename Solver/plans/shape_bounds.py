"""Seconds that no plan of a shape is below, whatever its degrees: known before any of its plans is
listed.

The layers take W seconds of a device per micro-batch of b samples, however they are cut into
stages. So dp replicas of pp stages take B / (b dp) x W / pp or more for a batch of B samples, and
there is room for dp pp groups of devices at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.devices.software import Software
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.rates import (
    Machine,
    between_s,
    exchange_rates,
    hides_tensor_collectives,
    straggler_excess,
)
from Estimator.plans.stage_price import ExpertRates
from Estimator.plans.stage_totals import PassTotals, StageTimes
from phaze_common.array_types import FloatArray
from Solver.plans.space import PlanSpace


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


def least_iteration_s(
    space: PlanSpace, shape: UniformPlan, model: StageTimes, machine: Machine
) -> FloatArray:
    """Seconds that no plan of ``space`` with ``shape`` is below where all layers on one stage take
    those of ``model``; (ways,).

    A stage's passes are convex in what its layers add up to (``stage_price.pass_price``), so that
    all layers on one stage take no longer than the same on several."""
    groups = min(space.devices // shape.inner_devices, most_groups(space, shape))
    passes = (model.forward, model.recompute, model.backward)
    slower = float(
        straggler_excess(machine, space.devices if space.use_all_devices else shape.inner_devices)
    )
    ahead_s, back_s = _most_hidden_s(model, exchange_rates(shape, machine))
    hidden_s = ahead_s, np.zeros_like(ahead_s), back_s
    work_s: FloatArray = np.sum(
        [
            _least_pass_s(each, hides_s, shape, machine.software, slower)
            for each, hides_s in zip(passes, hidden_s, strict=True)
        ],
        axis=0,
    )
    return work_s * shape.global_batch_size / (shape.micro_batch_size * groups) + between_s(
        machine.software
    )


def most_groups(space: PlanSpace, shape: UniformPlan) -> int:
    """Groups of devices that plans with the degrees of ``space`` occupy at most."""
    if space.dp_degrees is None or space.pp_degrees is None:
        return space.devices
    return max(space.dp_degrees) * max(space.pp_degrees)


def _most_hidden_s(model: StageTimes, exchange: ExpertRates) -> tuple[FloatArray, FloatArray]:
    """Seconds of the exchanges of forward and of backward passes that another micro-batch's hide,
    were there always one (``stage_price.hidden_exchanges``)."""
    forward, again, back = model.forward, model.recompute, model.backward
    if not exchange.beside:
        return np.zeros_like(forward.expert_s), np.zeros_like(forward.expert_s)
    forward_s = forward.device_s - forward.expert_s
    backward_s = again.device_s - again.expert_s + back.device_s - back.expert_s
    delayed_s = forward.products_s if exchange.delays else 0.0

    def hidden_s(exchange_s: FloatArray, passes_s: FloatArray) -> FloatArray:
        least_s = exchange_s - np.maximum(passes_s, 0.0) * exchange.hidden_part
        return exchange_s - np.maximum(least_s, exchange_s * exchange.shown_part)

    ahead_s = hidden_s(forward.expert_s, backward_s - delayed_s)
    return ahead_s, hidden_s(back.expert_s, forward_s + delayed_s)


def _least_pass_s(
    totals: PassTotals,
    exchanged_s: FloatArray,
    shape: UniformPlan,
    software: Software,
    slower: float,
) -> FloatArray:
    """One pass at least, arithmetic ``slower``: nothing is accumulated, no weights gathered, and
    ``exchanged_s`` are hidden."""
    hidden_s: FloatArray = np.zeros_like(totals.tensor_s)
    if hides_tensor_collectives(shape, software):
        hidden_s = np.minimum(totals.tensor_s, totals.products_s) * (1.0 - 1.0 / shape.tp)
    busy_s = totals.device_s + slower * totals.arithmetic_s + totals.tensor_s - hidden_s
    busy_s = busy_s - exchanged_s
    least_s: FloatArray = np.maximum(busy_s, totals.host_s)
    return least_s
