"""``PlanWork`` of a priced plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from Estimator.network.links import transfer_costs
from Estimator.pass_parts import PassParts
from Estimator.plans.groups import GroupNetwork, layer_groups
from Estimator.plans.layer_costs import moded_layers, run_again, summed_parts
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import Messages
from Estimator.plans.stage_price import StagePrice
from GraphExtractor.graph import CollectiveGroup, CollectiveKind, Operator
from phaze.exports.chakra.parameter_traffic import StageTraffic, stage_traffic
from phaze.exports.chakra.work import (
    ChunkWork,
    Members,
    Message,
    PassWork,
    PlanWork,
    StageWork,
    Traffic,
)

# part of the seconds of collectives that is no communication hidden, but digits lost
ROUNDING = 1e-9
_MEMBERS = {
    CollectiveGroup.TENSOR: Members.TENSOR,
    CollectiveGroup.TENSOR2: Members.TENSOR2,
    CollectiveGroup.CONTEXT: Members.CONTEXT,
    CollectiveGroup.EXPERT: Members.EXPERT,
}
_OF_TENSORS = (CollectiveGroup.TENSOR, CollectiveGroup.TENSOR2)
# Panels of a 2D product reach all members, each from another one, or are summed up on another one;
# keys and values go around a ring: that moves what a gather or scatter of the whole tensor does.
_AS_ONE = {
    CollectiveKind.BROADCAST: CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.PASS: CollectiveKind.ALL_GATHER,
}


def plan_work(priced: PricedPlan) -> PlanWork:
    """The work of a plan, whose exposed seconds never exceed those of the passes that they are part
    of."""
    plan = priced.plan
    stages = [_Stage(priced, stage) for stage in range(plan.pp)]
    messages = _messages(priced)
    chunks = tuple(
        ChunkWork(
            *stages[chunk % plan.pp].passes(chunk),
            ahead=messages[0][chunk] if messages and chunk < plan.chunks - 1 else None,
            back=messages[1][chunk - 1] if messages and chunk else None,
        )
        for chunk in range(plan.chunks)
    )
    once = tuple(
        StageWork(each.traffic.parameters, each.traffic.reductions, each.traffic.updates)
        for each in stages
    )
    tied_bytes = priced.tied_parameters * priced.rates.gradient_bytes
    tied = Traffic(CollectiveKind.ALL_REDUCE, Members.ENDS, tied_bytes, priced.tied_s, 0.0)
    return PlanWork(chunks, once, tied if plan.pp > 1 and tied_bytes else None)


def _messages(priced: PricedPlan) -> tuple[list[Message], list[Message]] | None:
    """What crosses every boundary between chunks forward and back; None where nothing does."""
    plan, cluster = priced.plan, priced.machine.cluster
    if plan.pp == 1:
        return None
    crossing = np.stack([priced.crossing.activation_bytes[1:], priced.crossing.gradient_bytes[1:]])
    whole_s = transfer_costs(cluster).seconds(crossing, Messages(plan, cluster).boundary_tiers())
    scattered = priced.transfers_s < whole_s  # sent in parts and gathered, see ``Messages.seconds``
    ahead, back = (
        [
            Message(size / plan.tp if parts else size, size if parts else 0.0)
            for size, parts in zip(sizes, which, strict=True)
        ]
        for sizes, which in zip(crossing.tolist(), scattered.tolist(), strict=True)
    )
    return ahead, back


@dataclass(frozen=True, eq=False)
class _Stage:
    """The passes of the chunks of a stage."""

    priced: PricedPlan
    stage: int

    @cached_property
    def parts(self) -> StagePrice[float]:
        return self.priced.stage_price(self.stage)

    @cached_property
    def traffic(self) -> StageTraffic:
        return stage_traffic(self.priced, self.stage, self.parts)

    def _distinct(self, chunk: int) -> list[int]:
        """Of the layers of ``chunk`` the places among the distinct ones."""
        return [self.priced.costs.sizes.sequence[layer] for layer in self.priced.chunks[chunk]]

    @cached_property
    def _shown(self) -> float:
        """Part of the tensor-parallel communication of the stage that nothing hides, as
        ``Estimator.plans.iteration`` has it."""
        chunks = range(self.stage, self.priced.plan.chunks, self.priced.plan.pp)
        layers = [layer for chunk in chunks for layer in self._distinct(chunk)]
        every = self._parts_of(layers)
        whole_s = sum(each.tensor_s + each.sequence_s for each in every)
        return 1.0 - self.parts.hidden_tensor_s / whole_s if whole_s else 1.0

    def _parts_of(self, layers: Sequence[int]) -> list[PassParts]:
        """Seconds by cause of the forward pass, of what is recomputed, and of the backward pass."""
        priced, costs = self.priced, self.priced.costs
        excess = priced.rates.straggler_excess
        return [
            summed_parts(each, priced.configuration, layers, excess)
            for each in (costs.forward, costs.recompute, costs.backward)
        ]

    def passes(self, chunk: int) -> tuple[PassWork, PassWork]:
        """Forward and backward pass of ``chunk``."""
        priced, layers = self.priced, self._distinct(chunk)
        graph, costs = priced.costs.graph, priced.costs
        moded, _ = moded_layers(graph, costs.mode)
        ahead, again = list[Operator](), list[Operator]()
        for place in layers:
            layer = graph.layers[moded[place].index]
            ahead += layer.forward.operators
            again += (*run_again(layer, moded[place].mode), *layer.backward.operators)
        share = priced.sizes.layers[chunk] / priced.sizes.layers[self.stage :: priced.plan.pp].sum()
        parts = self._parts_of(layers)
        forward, backward = self._pass(ahead, parts[:1]), self._pass(again, parts[1:])
        traffic = self.traffic
        forward = replace(forward, gathers=_shares(traffic.forward_gathers, share))
        backward = replace(
            backward,
            gathers=_shares(traffic.backward_gathers, share),
            reductions=_shares(traffic.backward_reductions, share),
        )
        forward_s, backward_s = map(float, priced.chunks_s[:, chunk])
        return _fitted(forward, forward_s), _fitted(backward, backward_s)

    def _pass(self, operators: Sequence[Operator], parts: Sequence[PassParts]) -> PassWork:
        """A pass of ``operators`` whose seconds by cause are ``parts``, without what parameters
        need."""
        priced = self.priced
        groups = layer_groups(priced.plan, priced.machine.cluster)
        networks = {
            each: GroupNetwork(groups.of(each), priced.machine.cluster) for each in CollectiveGroup
        }
        sent = defaultdict[tuple[CollectiveGroup, CollectiveKind], list[float]](lambda: [0.0, 0.0])
        for operator in operators:
            own = (operator.collective,) if operator.collective else ()
            for each in (*own, *operator.streamed):
                if groups.of(each.group).size > 1:
                    entry = sent[each.group, _AS_ONE.get(each.kind, each.kind)]
                    entry[0] += each.payload_bytes
                    entry[1] += networks[each.group].seconds(each.kind, each.payload_bytes)
        exposed_s = {
            _OF_TENSORS: self._shown * sum(each.tensor_s + each.sequence_s for each in parts),
            (CollectiveGroup.CONTEXT,): sum(each.context_s for each in parts),
            (CollectiveGroup.EXPERT,): sum(each.expert_s for each in parts),
        }
        within = list[Traffic]()
        for those, shown_s in exposed_s.items():
            alone_s = sum(seconds for (group, _), (_, seconds) in sent.items() if group in those)
            for (group, kind), (payload_bytes, seconds) in sent.items():
                if group in those and alone_s:
                    shows_s = shown_s * seconds / alone_s
                    hidden_s = seconds - shows_s if seconds - shows_s > ROUNDING * seconds else 0.0
                    within.append(Traffic(kind, _MEMBERS[group], payload_bytes, shows_s, hidden_s))
        flops = sum(each.flops for each in operators)
        moved = sum(each.bytes_read + each.bytes_written for each in operators)
        return PassWork(float(flops), float(moved), within=tuple(within))


def _shares(traffic: Iterable[Traffic], share: float) -> tuple[Traffic, ...]:
    """So great a ``share`` of every one of them."""
    return tuple(
        replace(
            each,
            payload_bytes=each.payload_bytes * share,
            exposed_s=each.exposed_s * share,
            hidden_s=each.hidden_s * share,
        )
        for each in traffic
    )


def _fitted(work: PassWork, pass_s: float) -> PassWork:
    """``work`` with no more exposed seconds than its pass takes, to which the shares of a stage's
    chunks may come."""
    exposed_s = sum(each.exposed_s for each in (*work.gathers, *work.within, *work.reductions))
    if exposed_s <= pass_s:
        return work
    part = pass_s / exposed_s

    def less(traffic: tuple[Traffic, ...]) -> tuple[Traffic, ...]:
        return tuple(
            replace(
                each,
                exposed_s=each.exposed_s * part,
                hidden_s=each.hidden_s + each.exposed_s * (1.0 - part),
            )
            for each in traffic
        )

    return replace(
        work, gathers=less(work.gathers), within=less(work.within), reductions=less(work.reductions)
    )
