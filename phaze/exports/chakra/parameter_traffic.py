"""What the devices that hold the same parameters send each other: gradients, and weights that ZeRO
divides among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from Estimator.plans.groups import GroupNetwork, divided_replicas, replicas
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.stage_price import SENT, StagePrice
from GraphExtractor.graph import CollectiveKind
from phaze.exports.chakra.work import Members, Traffic


@dataclass(frozen=True)
class StageTraffic:
    """Of a stage: what precedes and follows each of its passes, of all its chunks together, and
    what comes once."""

    parameters: float
    forward_gathers: tuple[Traffic, ...]
    backward_gathers: tuple[Traffic, ...]
    backward_reductions: tuple[Traffic, ...]
    reductions: tuple[Traffic, ...]
    updates: tuple[Traffic, ...]


@dataclass(frozen=True)
class _Flow:
    """A collective by itself, before it is known what hides it."""

    kind: CollectiveKind
    members: Members
    payload_bytes: float
    seconds: float


def stage_traffic(priced: PricedPlan, stage: int, parts: StagePrice[float]) -> StageTraffic:
    """That of ``stage``, whose exposed and hidden seconds ``parts`` say.

    ZeRO stage 3 gathers and scatters layer by layer, so each of its collectives stands for as many.
    """
    flows, zero = _Flows(priced, stage), priced.plan.sharding
    weight, gradient = priced.rates.weight_bytes, priced.rates.gradient_bytes
    rows_bytes = flows.held.wide * float(priced.rates.wide[SENT])
    gathers = flows.of(CollectiveKind.ALL_GATHER, weight, rows_bytes) if zero else ()
    scatters = flows.of(CollectiveKind.REDUCE_SCATTER, gradient) if zero else ()
    passes_s = parts.exposed_data_s + parts.hidden_data_s
    gather_s = _seconds(gathers) if zero == 3 else 0.0
    scatter_s = _seconds(scatters) if zero > 1 else 0.0
    # Copies within a device, which are part of what is priced, go with the gathers.
    gather_s = max((passes_s - scatter_s) / 2.0, gather_s) if zero == 3 else 0.0
    back_s = parts.exposed_data_s - parts.forward_data_s
    of_gathers = gather_s / (gather_s + scatter_s) if gather_s else 0.0
    hidden_forward_s = max(gather_s - parts.forward_data_s, 0.0)
    hidden_back_s = max(parts.hidden_data_s - hidden_forward_s, 0.0)
    reductions: tuple[_Flow, ...] = ()
    whole = zero == 0 or (zero == 1 and priced.rates.reduces_all)
    if whole:
        reductions = flows.of(CollectiveKind.ALL_REDUCE, gradient)
    elif zero == 1:
        reductions = scatters
    if zero == 0:
        reductions = (*reductions, *flows.sparse())
    updates = gathers if zero in (1, 2) else ()
    once_s = max(float(priced.after_s[stage]) - _tied_s(priced, stage), 0.0)
    whole_s = _seconds(reductions) + _seconds(updates)
    reduced = _seconds(reductions) / whole_s if whole_s else 0.0
    layered = gathers if zero == 3 else ()
    scattered = scatters if zero > 1 else ()
    of_scatters, of_updates = 1.0 - of_gathers, 1.0 - reduced
    hidden_once_s = parts.hidden_once_s
    return StageTraffic(
        parameters=flows.held.dense + flows.held.experts,
        forward_gathers=_traffic(layered, parts.forward_data_s, hidden_forward_s),
        backward_gathers=_traffic(layered, back_s * of_gathers, hidden_back_s * of_gathers),
        backward_reductions=_traffic(scattered, back_s * of_scatters, hidden_back_s * of_scatters),
        reductions=_traffic(reductions, once_s * reduced, hidden_once_s * reduced),
        updates=_traffic(updates, once_s * of_updates, hidden_once_s * of_updates),
    )


class _Flows:
    """The collectives of a stage over its parameters, those of experts by themselves where some
    devices divide them."""

    def __init__(self, priced: PricedPlan, stage: int) -> None:
        plan, cluster = priced.plan, priced.machine.cluster
        chunks = slice(stage, None, plan.pp)
        self.held = priced.parameters_of(stage)
        self._pieces = float(priced.sizes.layers[chunks].sum()) if plan.sharding == 3 else 1.0
        alike = replicas(plan, cluster)
        of_experts = divided_replicas(plan, cluster) if priced.rates.expert_split else alike
        self._networks = {
            Members.REPLICAS: GroupNetwork(alike, cluster),
            Members.EXPERT_REPLICAS: GroupNetwork(of_experts, cluster),
        }

    def of(
        self, kind: CollectiveKind, bytes_each: float, more_bytes: float = 0.0
    ) -> tuple[_Flow, ...]:
        """Collectives of that ``kind`` over all parameters, of ``bytes_each``, with ``more_bytes``
        of all together."""
        dense = self.held.dense - self.held.rows.table_parameters
        payloads = {
            Members.REPLICAS: dense * bytes_each + more_bytes,
            Members.EXPERT_REPLICAS: self.held.experts * bytes_each,
        }
        return tuple(
            self._flow(kind, members, payload_bytes)
            for members, payload_bytes in payloads.items()
            if payload_bytes > 0.0 and self._networks[members].groups.size > 1
        )

    def sparse(self) -> tuple[_Flow, ...]:
        """The gather of gradients that are lists of rows."""
        if not self.held.rows.sent_bytes or self._networks[Members.REPLICAS].groups.size == 1:
            return ()
        return (self._flow(CollectiveKind.ALL_GATHER, Members.REPLICAS, self.held.rows.sent_bytes),)

    def _flow(self, kind: CollectiveKind, members: Members, payload_bytes: float) -> _Flow:
        seconds = self._pieces * self._networks[members].seconds(kind, payload_bytes / self._pieces)
        return _Flow(kind, members, payload_bytes, seconds)


def _tied_s(priced: PricedPlan, stage: int) -> float:
    """What of the synchronisation of ``stage`` is that of tied parameters."""
    if priced.plan.pp == 1 or stage not in (0, priced.plan.pp - 1):
        return 0.0
    return priced.tied_s


def _seconds(flows: Iterable[_Flow]) -> float:
    return sum(each.seconds for each in flows)


def _traffic(flows: tuple[_Flow, ...], exposed_s: float, hidden_s: float) -> tuple[Traffic, ...]:
    """``flows`` with their parts of exposed and hidden seconds, by what they take themselves."""
    whole_s = _seconds(flows)
    parts = [each.seconds / whole_s if whole_s else 1.0 / len(flows) for each in flows]
    return tuple(
        Traffic(each.kind, each.members, each.payload_bytes, exposed_s * part, hidden_s * part)
        for each, part in zip(flows, parts, strict=True)
    )
