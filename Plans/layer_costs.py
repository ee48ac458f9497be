"""Seconds and bytes of every layer of a model graph on one device of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from Common.errors import PhazeError
from Estimator.devices.operator_cost import DeviceModel, KernelTime
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import Collective, CollectiveGroup, LayerGraph, ModelGraph, Operator, OperatorKind, Phase, Recompute
from Plans.groups import ALONE, DeviceGroups, GroupNetwork
from Solver.search.variants import workspace_bytes


@dataclass(frozen=True)
class PassCost:
    """One pass of one micro-batch through one or several layers: kernels, and the collectives between them.

    ``products_s`` are the seconds of matrix products, behind which tensor-parallel collectives can hide.
    """

    kernels: KernelTime
    products_s: float
    tensor_s: float
    context_s: float
    expert_s: float

    def __add__(self, other: PassCost) -> PassCost:
        return PassCost(
            self.kernels + other.kernels,
            self.products_s + other.products_s,
            self.tensor_s + other.tensor_s,
            self.context_s + other.context_s,
            self.expert_s + other.expert_s,
        )

    def times(self, factor: float) -> PassCost:
        """``factor`` of it."""
        return PassCost(
            self.kernels.times(factor),
            self.products_s * factor,
            self.tensor_s * factor,
            self.context_s * factor,
            self.expert_s * factor,
        )


NOTHING = PassCost(KernelTime(), 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class LayerCost:
    """A layer on one device.

    ``recompute`` is what recomputation runs again, ``accumulation`` what adds weight gradients to those of earlier micro-batches.
    ``parameters`` include ``expert_parameters``.
    """

    forward: PassCost
    backward: PassCost
    recompute: PassCost
    accumulation: PassCost
    parameters: int
    expert_parameters: int
    tied_parameters: int
    saved_bytes: int
    workspace_bytes: int
    forward_flops: int
    recomputed_flops: int


@dataclass(frozen=True)
class _Network:
    """Where the groups of a graph's collectives lie."""

    cluster: Cluster
    tp: int
    experts: GroupNetwork

    def seconds(self, collective: Collective) -> float:
        if collective.group is CollectiveGroup.EXPERT:
            return self.experts.seconds(collective.kind, collective.payload_bytes)
        stride = 1 if collective.group is CollectiveGroup.TENSOR else self.tp
        return collective_s(collective.kind, collective.payload_bytes, collective.group_size, stride, self.cluster)


def layer_costs(
    graph: ModelGraph, recompute: Recompute, model: DeviceModel, cluster: Cluster, experts: DeviceGroups = ALONE
) -> tuple[LayerCost, ...]:
    """Costs of the layers in execution order; tensor-parallel groups are innermost on the cluster, context-parallel ones next.

    ``experts`` are the groups that divide the experts among them. The ends of the model, embedding and head, keep their
    activations whatever ``recompute`` says, as Megatron-LM does.
    """
    if experts.size != graph.key.ep:
        raise PhazeError(f"a graph of expert parallel degree {graph.key.ep} is priced for groups of {experts.size} devices")
    network = _Network(cluster, graph.key.tp, GroupNetwork(experts, cluster))
    ends = {0, len(graph.sequence) - 1} if len(graph.sequence) > 1 else set()
    modes = [Recompute.NONE if position in ends else recompute for position in range(len(graph.sequence))]
    wanted = list(zip(graph.sequence, modes, strict=True))
    distinct = {(index, mode): _layer_cost(graph.layers[index], mode, model, network) for index, mode in set(wanted)}
    return tuple(distinct[each] for each in wanted)


def _layer_cost(layer: LayerGraph, recompute: Recompute, model: DeviceModel, network: _Network) -> LayerCost:
    again = _operators_run_again(layer, recompute)
    return LayerCost(
        forward=_pass_cost(layer.forward.operators, model, network),
        backward=_pass_cost(layer.backward.operators, model, network),
        recompute=_pass_cost(again, model, network),
        accumulation=replace(NOTHING, kernels=model.accumulation_time(layer.parameter_count)),
        parameters=layer.parameter_count,
        expert_parameters=layer.expert_parameter_count,
        tied_parameters=layer.tied_count,
        saved_bytes=layer.saved.under(recompute),
        workspace_bytes=workspace_bytes(layer, recompute),
        forward_flops=layer.forward.flops,
        recomputed_flops=sum(operator.flops for operator in again),
    )


def _operators_run_again(layer: LayerGraph, recompute: Recompute) -> tuple[Operator, ...]:
    """Forward operators that ``recompute`` runs before or in the backward pass."""
    if recompute is Recompute.FULL:
        return layer.forward.operators
    if recompute is Recompute.SELECTIVE:
        return tuple(each for each in layer.backward_selective.operators if each.phase is Phase.FORWARD)
    return ()


def _pass_cost(operators: Sequence[Operator], model: DeviceModel, network: _Network) -> PassCost:
    """Sum over ``operators``, which run one after another in one stream."""
    total = NOTHING
    for operator in operators:
        time = model.operator_time(operator)
        seconds = dict.fromkeys(CollectiveGroup, 0.0)
        if operator.collective is not None:
            seconds[operator.collective.group] = network.seconds(operator.collective)
        products_s = time.device_s if operator.kind in (OperatorKind.GEMM, OperatorKind.CONV) else 0.0
        total += PassCost(
            time,
            products_s,
            seconds[CollectiveGroup.TENSOR],
            seconds[CollectiveGroup.CONTEXT],
            seconds[CollectiveGroup.EXPERT],
        )
    return total
