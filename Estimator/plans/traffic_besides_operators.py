"""Bytes that an iteration of a plan moves besides those of its layers' operators: optimizer,
gradients over replicas, pipeline messages.

They take joules too, which differ from plan to plan of one shape; searches by joules compare those
of operators.
"""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.network.collectives import wire_bytes
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.stage_price import SENT
from GraphExtractor.graph import CollectiveKind


@dataclass(frozen=True)
class TrafficBytes:
    """Bytes of an iteration on all devices: of device memory, and sent, counted once."""

    memory: float
    sent: float


def traffic_besides_operators(priced: PricedPlan) -> TrafficBytes:
    """Memory: the step and adding up gradients; sent: gradients, weights, activations."""
    plan, prices, stages = priced.plan, priced.prices, priced.alike[0]
    devices = priced.devices[0]
    updates_s = prices.step_s - prices.step_waiting_s - priced.between_s
    in_memory_s = float((updates_s + plan.micro_batches * stages.accumulated_s).sum())
    memory = in_memory_s * priced.machine.stream_bytes_per_s * devices
    sent = sum(_sent_bytes(priced, stage) for stage in range(plan.pp)) * devices
    if plan.pp > 1:
        crossing = priced.crossing
        tied_bytes = priced.tied_parameters * priced.rates.gradient_bytes
        between = float((crossing.activation_bytes[1:] + crossing.gradient_bytes[1:]).sum())
        sent += between * plan.micro_batches * devices
        sent += wire_bytes(CollectiveKind.ALL_REDUCE, tied_bytes, 2) * 2 * devices
    return TrafficBytes(memory, sent)


def _sent_bytes(priced: PricedPlan, stage: int) -> float:
    """Bytes that a device sends to replicas (Rajbhandari et al. 2020, section 7)."""
    held, copies = priced.parameters_of(stage), int(priced.rates.copies)
    dense = _to_copies(priced, held.dense - held.rows.table_parameters, copies, held.wide)
    sparse = wire_bytes(CollectiveKind.ALL_GATHER, held.rows.sent_bytes, copies)
    return dense + sparse + _to_copies(priced, held.experts, priced.plan.divided_copies(copies))


def _to_copies(priced: PricedPlan, parameters: float, copies: int, wide: float = 0.0) -> float:
    rates, often = priced.rates, priced.plan.micro_batches
    gradients = parameters * rates.gradient_bytes
    weights = parameters * rates.weight_bytes + wide * rates.wide[SENT]
    gathered = wire_bytes(CollectiveKind.ALL_GATHER, weights, copies)
    scattered = wire_bytes(CollectiveKind.REDUCE_SCATTER, gradients, copies)
    if rates.zero_stage == 3:
        return often * (2 * gathered + scattered)
    if rates.zero_stage == 2:
        return gathered + often * scattered
    if rates.zero_stage == 1 and not rates.reduces_all:
        return gathered + scattered
    reduced = wire_bytes(CollectiveKind.ALL_REDUCE, gradients, copies)
    return reduced + (gathered if rates.zero_stage == 1 else 0.0)
