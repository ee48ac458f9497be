"""Costs of layers on one device: operators run one after another in one stream.

What operators take by themselves is priced once per graph, however many ways its groups lie in; only collectives are priced
again, each kind and size once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from Estimator.cost_model import PieceTimes
from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    LayerGraph,
    ModelGraph,
    Operator,
    OperatorKind,
    Recompute,
)
from Plans.groups import DeviceGroups, GroupNetwork, LayerGroups
from Plans.layer_costs import (
    FloatArray,
    GraphNetwork,
    LayerCosts,
    LayerSizes,
    ModedLayer,
    PassCosts,
    check_groups,
    layer_sizes,
    moded_layers,
    run_again,
)
from Plans.streams import exposed_s

_FORWARD, _AGAIN, _BACKWARD = "forward", "again", "backward"


@dataclass(frozen=True)
class _Streaming:
    """A product, and the seconds of its pieces, beside which collectives run; these count among those of ``column``."""

    operator: Operator
    pieces: PieceTimes[float]
    column: int


@dataclass(frozen=True, eq=False)
class PassWork:
    """One pass through one layer: the first fields of ``PassCosts``, and what the groups decide the rest of."""

    alone_s: FloatArray  # (5,)
    collectives: tuple[tuple[int, Collective, int], ...]  # field of PassCosts, and how often
    streaming: tuple[_Streaming, ...]

    def priced(self, network: GraphNetwork, panels: int) -> FloatArray:
        """All fields of ``PassCosts``, shape (9,)."""
        total = np.concatenate([self.alone_s, np.zeros(4)])
        for column, collective, times in self.collectives:
            total[column] += times * network.seconds(collective)
        for each in self.streaming:
            total[each.column] += exposed_s(each.operator, each.pieces, network.seconds, panels)
        return total


class DeviceCosts:
    """Prices the layers of graphs on one device of a cluster."""

    def __init__(self, model: DeviceModel, cluster: Cluster) -> None:
        self._model, self._cluster = model, cluster
        self._graphs: dict[GraphKey, _GraphWork] = {}
        self._networks: dict[DeviceGroups, GroupNetwork] = {}

    def layer_costs(self, graph: ModelGraph, recompute: Recompute, groups: LayerGroups) -> LayerCosts:
        """Costs of ``graph`` (one configuration) with the ``groups`` that communicate within a layer.

        Raises:
            PhazeError: the groups are of other sizes than the graph was made for.
        """
        work = self._graphs.get(graph.key)
        if work is None or work.graph is not graph:
            work = self._graphs[graph.key] = _GraphWork(graph, self._model)
        check_groups(graph, groups)
        return work.costs(recompute, GraphNetwork.over(groups, self._network), groups.panels)

    def _network(self, groups: DeviceGroups) -> GroupNetwork:
        if groups not in self._networks:
            self._networks[groups] = GroupNetwork(groups, self._cluster)
        return self._networks[groups]


class _GraphWork:
    """The passes through the layers of one graph, without what collectives take."""

    def __init__(self, graph: ModelGraph, model: DeviceModel) -> None:
        self.graph, self._model = graph, model
        self._passes: dict[tuple[str, ModedLayer, int], PassWork] = {}
        self._sizes: dict[tuple[Recompute, int], LayerSizes] = {}

    def costs(self, recompute: Recompute, network: GraphNetwork, panels: int) -> LayerCosts:
        """Costs of all layers whose groups communicate over ``network``."""
        distinct, _ = moded_layers(self.graph, recompute)
        if (recompute, panels) not in self._sizes:
            self._sizes[recompute, panels] = layer_sizes(self.graph, recompute, panels)

        def passes(name: str) -> PassCosts:
            columns = [self._pass(name, each, panels).priced(network, panels) for each in distinct]
            return PassCosts(*np.stack(columns, axis=1)[:, None, :])

        layers = [self.graph.layers[each.index] for each in distinct]
        return LayerCosts(
            graph=self.graph,
            mode=recompute,
            sizes=self._sizes[recompute, panels],
            forward=passes(_FORWARD),
            recompute=passes(_AGAIN),
            backward=passes(_BACKWARD),
            accumulation_s=np.array([[self._model.accumulation_time(_accumulated(layer)).memory_s for layer in layers]]),
        )

    def _pass(self, name: str, moded: ModedLayer, panels: int) -> PassWork:
        known = self._passes.get((name, moded, panels))
        if known is None:
            layer = self.graph.layers[moded.index]
            operators = {
                _FORWARD: lambda: layer.forward.operators,
                _AGAIN: lambda: run_again(layer, moded.mode),
                _BACKWARD: lambda: layer.backward.operators,
            }[name]()
            known = self._passes[name, moded, panels] = pass_work(operators, self._model, panels)
        return known


def pass_work(operators: Iterable[Operator], model: DeviceModel, panels: int) -> PassWork:
    """Sums over ``operators`` of one layer; products that stream have their own collectives to hide."""
    alone_s, collectives, streaming = np.zeros(5), Counter[tuple[int, Collective]](), []
    for operator in operators:
        time = model.operator_time(operator, panels)
        alone_s[:4] += time.arithmetic_s, time.memory_s, time.launch_s, time.host_s
        if operator.kind in (OperatorKind.GEMM, OperatorKind.CONV) and not operator.streamed:
            alone_s[4] += time.device_s
        if operator.collective is not None:
            collectives[_column_of(operator.collective), operator.collective] += 1
        if operator.streamed:  # in the column of the first: panels are all of tensor parallelism, a ring is of the other
            streaming.append(_Streaming(operator, model.piece_times(operator, panels), _column_of(operator.streamed[0])))
    return PassWork(alone_s, tuple((*each, times) for each, times in collectives.items()), tuple(streaming))


def _accumulated(layer: LayerGraph) -> int:
    """Parameters whose gradients are added to those of earlier micro-batches: sparse ones are lists of rows, put together."""
    return layer.parameter_count - layer.sparse_parameter_count


def _column_of(collective: Collective) -> int:
    """The field of ``PassCosts`` that a collective belongs to."""
    if collective.group in (CollectiveGroup.TENSOR, CollectiveGroup.TENSOR2):
        return 5 if collective.kind is CollectiveKind.ALL_REDUCE else 6
    return 7 if collective.group is CollectiveGroup.CONTEXT else 8
