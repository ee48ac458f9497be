"""Costs of layers on one device: operators run one after another in one stream.

What operators take by themselves is priced once per graph, however many ways its groups lie in;
only collectives are priced again, each kind and size once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from Estimator.cost_model import PieceTimes
from Estimator.devices.operator_cost import REDUCED_FORMATS, DeviceModel
from Estimator.network.cluster import Cluster
from Estimator.network.contention import Hiding
from Estimator.network.dispatchers import Routing
from Estimator.plans.groups import DeviceGroups, GroupNetwork, GroupNetworks, LayerGroups
from Estimator.plans.host_parts import REPLAYED, HostPart, parts_of
from Estimator.plans.layer_costs import (
    FloatArray,
    LayerCosts,
    LayerSizes,
    ModedLayer,
    PassCosts,
    check_groups,
    ends_of,
    layer_sizes,
    moded_layers,
    run_again,
)
from Estimator.plans.orthogonal import matrix_s, orthogonal_s
from Estimator.plans.rates import device_machine, exchange_hiding
from Estimator.plans.stage_totals import PassTotals, StageTimes, pass_totals
from Estimator.plans.streams import exposed_s
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
from phaze_common.choices import CudaGraphs, Dispatcher, ExpertOverlap
from phaze_common.recompute_modules import Recomputation

LAUNCH, HOST, PRODUCTS = 2, 3, 4  # fields of ``PassCosts``
_FORWARD, _RECOMPUTE, _BACKWARD = "forward", "recompute", "backward"
_EXCHANGED = 8  # field of ``PassCosts``: exchanges with experts
SHARED = ".shared_expert"  # in names of operators of experts that all tokens meet


@dataclass(frozen=True)
class _Streaming:
    """A product in pieces beside which collectives run; these count in ``column``."""

    operator: Operator
    pieces: PieceTimes[float]
    column: int
    times: int = 1


@dataclass(frozen=True, eq=False)
class PassWork:
    """One pass through a layer: fields of ``PassCosts``, and what groups make of the others."""

    alone_s: FloatArray  # (5,)
    host_s: FloatArray  # of ``alone_s``, by ``HostPart``
    collectives: tuple[tuple[int, Collective, int], ...]  # field of PassCosts, and how often
    streaming: tuple[_Streaming, ...]
    shared_s: float  # of experts that all tokens meet, among ``alone_s``
    single_s: FloatArray  # of ``alone_s``, (5,): of kernels of single experts

    def priced(self, networks: _Networks) -> FloatArray:
        """All fields of ``PassCosts``, shape (9, ways in which groups lie)."""
        total = np.zeros((9, len(networks)))
        total[: len(self.alone_s)] = self.alone_s[:, None]
        if networks.graphs is not CudaGraphs.NONE:
            issued = [part not in REPLAYED[networks.graphs] for part in HostPart]
            total[HOST] = self.host_s[issued].sum()
        if networks.graphs is CudaGraphs.ITERATION:  # whose kernels work on all experts
            total[: len(self.single_s)] -= self.single_s[:, None]
        for column, collective, times in self.collectives:
            total[column] += times * networks.seconds(collective)
        for each in self.streaming:
            first_s, other_s = each.pieces.first_s, each.pieces.other_s
            pieces = PieceTimes(np.full(len(networks), first_s), np.full(len(networks), other_s))
            total[each.column] += each.times * exposed_s(
                each.operator, pieces, networks.seconds, networks.panels
            )
        beside = networks.beside_shared
        if beside is not None:
            hidden_s = self.shared_s * beside.hidden_part
            total[_EXCHANGED] = np.maximum(
                total[_EXCHANGED] - hidden_s, total[_EXCHANGED] * beside.shown_part
            )
        return total


class _Networks:
    """Prices the collectives of a graph for each of the ways in which its ``groups`` lie.

    Tokens, routed as ``routing`` says, all get to their experts by one ``dispatcher``, and what
    becomes of that ``beside_shared`` experts is known, if it runs beside them.
    """

    def __init__(
        self,
        groups: Sequence[LayerGroups],
        network: Callable[[DeviceGroups], GroupNetwork],
        routing: Routing,
        dispatcher: Dispatcher,
        beside_shared: Hiding | None,
    ) -> None:
        self.groups, self._network, self.beside_shared = tuple(groups), network, beside_shared
        self.panels, self.graphs = groups[0].panels, groups[0].graphs
        self._routing, self._dispatcher = routing, dispatcher
        self._in_fp8 = self.groups[0].tokens.in_fp8
        self._networks: dict[CollectiveGroup, GroupNetworks] = {}

    def __len__(self) -> int:
        return len(self.groups)

    def seconds(self, collective: Collective) -> FloatArray:
        """Seconds of one collective, shape (ways,)."""
        group = collective.group
        if group not in self._networks:
            self._networks[group] = GroupNetworks(
                [self._network(each.of(group)) for each in self.groups]
            )
        networks, payload_bytes = self._networks[group], collective.payload_bytes
        if collective.exchanges_tokens:
            return networks.exchange_s(
                payload_bytes, self._dispatcher, self._routing, in_fp8=self._in_fp8
            )
        return networks.seconds(collective.kind, payload_bytes)


class DeviceCosts:
    """Prices the layers of graphs on one device of a cluster."""

    def __init__(self, model: DeviceModel, cluster: Cluster) -> None:
        self._model, self._cluster = model, cluster
        self._graphs: dict[GraphKey, _GraphWork] = {}
        self._works = lru_cache(maxsize=None)(pass_work)
        self._matrix_s = lru_cache(maxsize=None)(partial(matrix_s, model))
        self._networks: dict[DeviceGroups, GroupNetwork] = {}

    def layer_costs(
        self, graph: ModelGraph, recompute: Recomputation, groups: LayerGroups
    ) -> LayerCosts:
        """Costs of ``graph`` (one configuration) with the ``groups`` that communicate within a
        layer.

        Raises:
            PhazeError: the groups are of other sizes than the graph was made for.
        """
        return self.costs_by_groups(graph, recompute, [groups])

    def costs_by_groups(
        self, graph: ModelGraph, recompute: Recomputation, groups: Sequence[LayerGroups]
    ) -> LayerCosts:
        """The same with one configuration for each of ``groups``, whose products all run in as many
        panels, and whose graphs replay the same kernels.

        Raises:
            PhazeError: some are of other sizes than the graph was made for.
        """
        work = self._work(graph, groups)
        return work.costs(recompute, self._networks_of(work, groups))

    def model_times(
        self, graph: ModelGraph, recompute: Recomputation, groups: Sequence[LayerGroups]
    ) -> StageTimes:
        """What a stage of all layers takes for each of ``groups``, arrays of shape (groups,).

        Raises:
            PhazeError: some are of other sizes than the graph was made for.
        """
        work = self._work(graph, groups)
        return work.model_times(recompute, self._networks_of(work, groups))

    def _work(self, graph: ModelGraph, groups: Sequence[LayerGroups]) -> _GraphWork:
        for each in groups:
            check_groups(graph, each)
        work = self._graphs.get(graph.key)
        if work is None or work.graph is not graph:
            work = self._graphs[graph.key] = _GraphWork(
                graph, self._model, self._works, self._matrix_s
            )
        return work

    def _networks_of(self, work: _GraphWork, groups: Sequence[LayerGroups]) -> _Networks:
        tokens, software = groups[0].tokens, self._model.software
        dispatcher = tokens.dispatcher or software.dispatcher
        usual, hiding = software.overlap_experts is ExpertOverlap.SHARED, None
        if usual if tokens.beside_shared is None else tokens.beside_shared:
            machine = device_machine(self._model, self._cluster)
            hiding = exchange_hiding(dispatcher, work.graph.key.ep, machine)
        return _Networks(groups, self._network, work.routing, dispatcher, hiding)

    def _network(self, groups: DeviceGroups) -> GroupNetwork:
        if groups not in self._networks:
            self._networks[groups] = GroupNetwork(groups, self._cluster)
        return self._networks[groups]


class _GraphWork:
    """The passes through the layers of one graph, without what collectives take.

    ``works`` is ``pass_work``, and ``matrix`` is ``matrix_s`` of the model, which know what other
    graphs have too.
    """

    def __init__(
        self,
        graph: ModelGraph,
        model: DeviceModel,
        works: Callable[..., PassWork],
        matrix: Callable[[int, int], float],
    ) -> None:
        self.graph, self._model, self._pass_work = graph, model, works
        self._passes: dict[tuple[str, ModedLayer, int], PassWork] = {}
        self._sizes: dict[tuple[Recomputation, int], LayerSizes] = {}
        self._totals: dict[tuple[object, ...], PassTotals] = {}
        self._layers = lru_cache(maxsize=None)(partial(moded_layers, graph))
        self.routing = routing_of(graph)
        self._ends = ends_of(graph)
        self._model_of_ends = model.outside_blocks
        self._matrices_s = orthogonal_s(graph, matrix)
        self._keeping = model.software.keeping(in_fp8=model.number_format in REDUCED_FORMATS)

    def costs(self, recompute: Recomputation, networks: _Networks) -> LayerCosts:
        """Costs of all layers whose groups communicate over ``networks``."""
        panels = networks.panels
        distinct, _ = self._layers(recompute)
        if (recompute, panels) not in self._sizes:
            sizes = layer_sizes(self.graph, recompute, panels, self._keeping)
            matrices_s = self._matrices_s[[each.index for each in distinct]]
            self._sizes[recompute, panels] = replace(sizes, matrices_s=matrices_s)

        def passes(name: str) -> PassCosts:
            columns = [self._pass(name, each, panels).priced(networks) for each in distinct]
            return PassCosts(*np.stack(columns, axis=2))

        accumulation_s = np.array([self._accumulation_s(each) for each in distinct])
        return LayerCosts(
            graph=self.graph,
            mode=recompute,
            sizes=self._sizes[recompute, panels],
            forward=passes(_FORWARD),
            recompute=passes(_RECOMPUTE),
            backward=passes(_BACKWARD),
            accumulation_s=np.broadcast_to(accumulation_s, (len(networks), len(distinct))),
        )

    def model_times(self, recompute: Recomputation, networks: _Networks) -> StageTimes:
        """What a stage of all layers takes over each of ``networks``."""
        distinct, sequence = self._layers(recompute)
        times = [(distinct[place], count) for place, count in Counter(sequence).items()]

        def passes(name: str) -> PassTotals:
            # modes differ in what they run again alone
            run = tuple(
                (each if name == _RECOMPUTE else each.index, count) for each, count in times
            )
            asked = name, run, networks.groups
            if asked not in self._totals:
                works = [(self._pass(name, each, networks.panels), count) for each, count in times]
                costs = _repeated(works).priced(networks)
                self._totals[asked] = pass_totals(PassCosts(*costs))
            return self._totals[asked]

        accumulation_s = sum(count * self._accumulation_s(each) for each, count in times)
        added_s = np.full(len(networks), accumulation_s)
        return StageTimes(passes(_FORWARD), passes(_RECOMPUTE), passes(_BACKWARD), added_s)

    def _accumulation_s(self, moded: ModedLayer) -> float:
        return self._model.accumulation_time(_accumulated(self.graph.layers[moded.index])).memory_s

    def _pass(self, name: str, moded: ModedLayer, panels: int) -> PassWork:
        key = name, moded if name == _RECOMPUTE else ModedLayer(moded.index, Recompute.NONE), panels
        if key not in self._passes:
            layer = self.graph.layers[moded.index]
            operators = {
                _FORWARD: lambda: layer.forward.operators,
                _RECOMPUTE: lambda: run_again(layer, moded.mode),
                _BACKWARD: lambda: layer.backward.operators,
            }[name]()
            is_end = moded.index in self._ends
            model = self._model_of_ends if is_end else self._model
            beyond_s = model.run_again_s if name == _RECOMPUTE and operators else 0.0
            counted = panels if any(each.streamed for each in operators) else 1
            ends = (HostPart.ENDS,) * len(operators)
            parts = ends if is_end else parts_of(operators, layer)
            self._passes[key] = self._pass_work(tuple(operators), parts, model, counted, beyond_s)
        return self._passes[key]


def pass_work(
    operators: Sequence[Operator],
    parts: Sequence[HostPart],
    model: DeviceModel,
    panels: int,
    beyond_s: float = 0.0,
) -> PassWork:
    """Sums over a layer's ``operators``, which belong to ``parts``, ``beyond_s`` besides; what
    streams stays apart."""
    alone_s, host_s = np.array([0.0, 0.0, beyond_s, 0.0, 0.0]), np.zeros(len(HostPart))
    collectives = Counter[tuple[int, Collective]]()
    streaming, shared_s, single_s = [], 0.0, np.zeros(5)
    for operator, part in zip(operators, parts, strict=True):
        time = model.operator_time(operator, panels)
        shared_s += time.device_s if SHARED in operator.name else 0.0
        single = model.of_single_experts(operator)
        single_s[:4] += single.arithmetic_s, single.memory_s, single.launch_s, single.host_s
        alone_s[:4] += time.arithmetic_s, time.memory_s, time.launch_s, time.host_s
        host_s[part] += time.host_s
        if operator.kind in (OperatorKind.GEMM, OperatorKind.CONV) and not operator.streamed:
            alone_s[4] += time.device_s
            single_s[4] += single.device_s
        if operator.collective is not None:
            collectives[_column_of(operator.collective), operator.collective] += 1
        # in the column of the first: panels are all of tensor parallelism, a ring is of the other
        if operator.streamed:
            pieces = model.piece_times(operator, panels)
            streaming.append(_Streaming(operator, pieces, _column_of(operator.streamed[0])))
    own = (each for each, part in zip(operators, parts, strict=True) if part is HostPart.EXPERTS)
    if any(each.gemms and SHARED not in each.name for each in own):
        routing_s, experts_s = model.unseen_host_s
        alone_s[HOST] += routing_s + experts_s
        host_s[HostPart.ROUTER] += routing_s
        host_s[HostPart.EXPERTS] += experts_s
    sent = tuple((*each, times) for each, times in collectives.items())
    return PassWork(alone_s, host_s, sent, tuple(streaming), shared_s, single_s)


def _repeated(works: Iterable[tuple[PassWork, int]]) -> PassWork:
    alone_s, host_s, shared_s, single_s = np.zeros(5), np.zeros(len(HostPart)), 0.0, np.zeros(5)
    collectives, streaming = Counter[tuple[int, Collective]](), []
    for work, times in works:
        alone_s += times * work.alone_s
        host_s += times * work.host_s
        shared_s += times * work.shared_s
        single_s += times * work.single_s
        for column, collective, often in work.collectives:
            collectives[column, collective] += often * times
        streaming += [replace(each, times=each.times * times) for each in work.streaming]
    sent = tuple((*each, times) for each, times in collectives.items())
    return PassWork(alone_s, host_s, sent, tuple(streaming), shared_s, single_s)


def _accumulated(layer: LayerGraph) -> int:
    """Parameters whose gradients are added up: sparse ones are lists of rows instead."""
    return layer.parameter_count - layer.sparse_parameter_count


def routing_of(graph: ModelGraph) -> Routing:
    """How the tokens of ``graph`` are routed, whose exchanges show how many rows a device sends for
    those that it has."""
    key = graph.key
    tokens = key.micro_batch_size * key.sequence_length / key.sequence_devices
    tokens /= key.tp if key.sequence_parallel else 1
    for layer in graph.layers:
        for operator in layer.forward.operators:
            if operator.collective is not None and operator.collective.exchanges_tokens:
                chosen = operator.reads[0].shape[0] / tokens
                return Routing(max(chosen, 1.0), graph.chosen_groups)
    return Routing()


def _column_of(collective: Collective) -> int:
    if collective.group in (CollectiveGroup.TENSOR, CollectiveGroup.TENSOR2):
        return 5 if collective.kind is CollectiveKind.ALL_REDUCE else 6
    return 7 if collective.group is CollectiveGroup.CONTEXT else _EXCHANGED
