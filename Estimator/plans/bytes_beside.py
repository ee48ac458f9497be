"""Bytes that an iteration of a plan moves beside the operators of layers: optimizer, gradients over
replicas, pipeline messages.

They take joules too, which differ from plan to plan of one shape; searches by joules compare those
of operators.
"""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.network.collectives import wire_bytes
from Estimator.plans.pricing import PricedPlan, layers_of
from Estimator.plans.stage_parameters import stage_parameters
from Estimator.plans.stage_price import SENT
from GraphExtractor.graph import CollectiveKind


@dataclass(frozen=True)
class BytesBeside:
    """Bytes of one iteration on all devices together: those of device memory, and those that are
    sent, each counted once."""

    memory: float
    sent: float


def bytes_beside(priced: PricedPlan) -> BytesBeside:
    """Those of ``priced``: steps of the optimizer and adding up gradients in memory; gradients,
    weights and activations sent."""
    plan, devices = priced.plan, priced.plan.inner_devices * priced.plan.dp
    memory = sent = 0.0
    for stage in range(plan.pp):
        layers = [priced.costs.sizes.sequence[layer] for layer in layers_of(priced, stage)]
        adding_s = (
            float(priced.costs.accumulation_s[priced.configuration][layers].sum())
            * priced.rates.accumulated
        )
        in_memory_s = (
            float(priced.updates_s[stage]) - priced.rates.between_s + plan.micro_batches * adding_s
        )
        memory += in_memory_s * priced.machine.stream_bytes_per_s * devices
        sent += _sent_bytes(priced, stage) * devices
    if plan.pp > 1:
        crossing = priced.crossing
        between = float((crossing.activation_bytes[1:] + crossing.gradient_bytes[1:]).sum())
        sent += between * plan.micro_batches * devices
        sent += (
            wire_bytes(
                CollectiveKind.ALL_REDUCE, priced.tied_parameters * priced.rates.gradient_bytes, 2
            )
            * 2
            * devices
        )
    return BytesBeside(memory, sent)


def _sent_bytes(priced: PricedPlan, stage: int) -> float:
    """Bytes that a device of ``stage`` sends to those with the same parameters (Rajbhandari et al.
    2020, section 7)."""
    held, copies = stage_parameters(priced, stage), int(priced.rates.copies)
    dense = _to_copies(priced, held.dense - held.tables, copies, held.wide)
    sparse = wire_bytes(CollectiveKind.ALL_GATHER, held.row_bytes, copies)
    return dense + sparse + _to_copies(priced, held.experts, copies // priced.plan.divided_by)


def _to_copies(priced: PricedPlan, parameters: float, copies: int, wide: float = 0.0) -> float:
    rates, often = priced.rates, priced.plan.micro_batches
    gradients, weights = (
        parameters * rates.gradient_bytes,
        parameters * rates.weight_bytes + wide * rates.wide[SENT],
    )
    gathered, scattered = (
        wire_bytes(kind, payload, copies)
        for kind, payload in (
            (CollectiveKind.ALL_GATHER, weights),
            (CollectiveKind.REDUCE_SCATTER, gradients),
        )
    )
    if rates.zero_stage == 0 or (rates.zero_stage == 1 and rates.reduces_all):
        return wire_bytes(CollectiveKind.ALL_REDUCE, gradients, copies) + (
            gathered if rates.zero_stage == 1 else 0.0
        )
    if rates.zero_stage == 3:
        return often * (2 * gathered + scattered)
    return gathered + (often if rates.zero_stage == 2 else 1) * scattered
