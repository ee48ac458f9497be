"""The hardware that a search compares: N configurations of it, chips that are designed or one
device that exists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
from Estimator.chips.design_space import DesignSpace, ReferenceChip
from Estimator.chips.latency_table import PRICED_BY, load_or_populate, populate_estimates
from Estimator.chips.on_chip import OnChipMemo, on_chip_memo
from Estimator.chips.tensor_core import JOULES_PER_PJ
from Estimator.cost_model import OperatorCostModel
from Estimator.coverage import PricedByBytes, priced_by_bytes, unknown_functions
from Estimator.devices.device import Device
from Estimator.devices.functions import SCAN_OPERATIONS, TENSORS_MOVED
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Software
from Estimator.network.cluster import Cluster
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import LayerGroups
from Estimator.plans.layer_costs import GraphNetwork, LayerCosts, step_operators
from Estimator.plans.rates import Machine, device_machine
from Estimator.plans.stage_totals import StageTimes
from Estimator.plans.traffic_besides_operators import TrafficBytes
from Estimator.profiled.cost_model import ProfiledModel, check_model, operator_model, source_counts
from Estimator.profiled.sources import SourceCounts
from GraphExtractor.graph import Collective, GraphKey, ModelGraph, Operator, Recompute
from phaze_common.choices import Precision
from phaze_common.files import code_version, content_key
from phaze_common.recompute_modules import Recomputation
from phaze_common.records import to_json
from Solver.chip_metrics import ChipMetrics, purchase_of, with_links_of
from Solver.designs.layer_times import attributed_layer_costs, chip_layer_costs
from Solver.designs.network_times import PassNetwork
from Solver.designs.schedule_times import ScheduledGraph, scheduled_graph
from Solver.schedule.solver import NodeLimit, ScheduleSolver

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# whose code decides a price
PRICING_ROOMS = (*PRICED_BY, Path(__file__).resolve().parent)


@cache
def pricing_version() -> str:
    """Hash of the code that decides a price."""
    return code_version(*PRICING_ROOMS)


def graph_content(graph: ModelGraph) -> str:
    """Content key of a graph, wherever it is kept."""
    return content_key(to_json(graph).decode())


def layer_times_path(
    folder: Path, graph: ModelGraph, fingerprint: str, groups: LayerGroups
) -> Path:
    """Where the layer times of ``graph`` on hardware with that ``fingerprint`` are kept: named by
    everything that decides them, so ``folder`` may be shared by all runs."""
    key = content_key(fingerprint, pricing_version(), graph_content(graph), groups)
    return folder / graph.key.label / f"layer_times-{key}.npz"


@dataclass(frozen=True, eq=False)
class PricedGraph:
    """Layer costs of one graph on every configuration, by recomputation mode; ``least`` is what no
    schedule goes below."""

    costs: dict[Recomputation, LayerCosts]
    least: dict[Recomputation, LayerCosts]


class Hardware(ABC):
    """N configurations on one kind of cluster under one framework."""

    cluster: Cluster
    software: Software

    @property
    @abstractmethod
    def configurations(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def metrics(self) -> ChipMetrics:
        """What decides between configurations besides seconds and joules."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Content key of everything that prices."""

    @property
    @abstractmethod
    def known_functions(self) -> Collection[str]:
        """Vector functions that have a price of their own."""

    @abstractmethod
    def accelerator(self, row: int) -> Accelerator | None:
        """The chip of a configuration; None for a device that exists."""

    @abstractmethod
    def machine(self, row: int, memory_bytes: float) -> Machine:
        """Configuration ``row`` with so much memory."""

    def moving_j(self, row: int, moved: TrafficBytes) -> float | None:
        """Joules of bytes that no operator moves on configuration ``row``; None where its energy is
        not known."""
        return None

    @abstractmethod
    def price(
        self,
        graph: ModelGraph,
        modes: Sequence[Recomputation],
        groups: LayerGroups,
        folder: Path | None,
    ) -> PricedGraph:
        """Layer costs of ``graph``; ``groups`` are those that communicate within a layer.
        ``folder`` keeps what takes long."""

    def model_times(
        self, graph: ModelGraph, mode: Recomputation, groups: Sequence[LayerGroups]
    ) -> StageTimes | None:
        """What a stage of all layers takes for each of ``groups``, (groups,); None where it is as
        much work as ``price``."""
        return None

    def source_counts(self, graph: ModelGraph, mode: Recomputation) -> SourceCounts | None:
        """How much of a step was measured; None where nothing is."""
        return None

    def operator_prices(self, graph: ModelGraph, row: int) -> OperatorCostModel | None:
        """What prices the operators of ``graph`` on configuration ``row`` alone; None where nothing
        does one by one."""
        return None

    def by_bytes(
        self, graph: ModelGraph, mode: Recomputation, row: int = 0
    ) -> tuple[PricedByBytes, ...]:
        """The operators of a step that no formula describes; most models have none."""
        if unknown_functions((graph,), self.known_functions):
            prices = self.operator_prices(graph, row)
        else:
            prices = None
        if prices is None:
            return ()
        return priced_by_bytes(
            graph, mode, self.known_functions, lambda each: prices.price(each).alone.seconds[0]
        )

    @abstractmethod
    def attributed(self, costs: LayerCosts, groups: LayerGroups, row: int) -> LayerCosts:
        """``costs`` of configuration ``row`` alone, every pass attributed to what its seconds go
        to."""

    @abstractmethod
    def refined(
        self,
        modes: Sequence[Recomputation],
        graph: ModelGraph,
        groups: LayerGroups,
        rows: IntArray,
        node_limit: NodeLimit,
    ) -> PricedGraph:
        """What ``price`` gave for ``graph``, where it is of use with the configurations ``rows``
        solved up to ``node_limit``."""

    def in_cluster(self, cluster: Cluster) -> Hardware:
        """The same in another cluster, where that can be."""
        raise NotImplementedError

    def proven(self, graph: ModelGraph, mode: Recomputation, groups: LayerGroups) -> LayerCosts:
        """Layer costs of ``graph`` up to the largest node limit on every configuration."""
        self.price(graph, (mode,), groups, None)  # whose schedules ``refined`` goes on from
        return self.refined(
            (mode,), graph, groups, np.arange(self.configurations), NodeLimit.THOROUGH
        ).costs[mode]


@dataclass(frozen=True, eq=False)
class ExistingDevice(Hardware):
    """One device that exists."""

    device: Device
    cluster: Cluster
    software: Software
    precision: Precision

    @property
    def configurations(self) -> int:
        """How many there are."""
        return 1

    @cached_property
    def metrics(self) -> ChipMetrics:
        """Nothing is known of a device, and one is not compared with others."""
        return ChipMetrics.of_areas(np.ones(1))

    @cached_property
    def fingerprint(self) -> str:
        """Content key of everything that prices."""
        records = (self.device, self.cluster, self.software)
        return content_key(*(to_json(record).decode() for record in records), self.precision.value)

    @property
    def known_functions(self) -> Collection[str]:
        """Vector functions that have a price of their own."""
        return TENSORS_MOVED | SCAN_OPERATIONS

    @cached_property
    def _model(self) -> DeviceModel:
        return operator_model(self.device, self.software, self.precision.matrix_format)

    @cached_property
    def _costs(self) -> DeviceCosts:
        return DeviceCosts(self._model, self.cluster)

    def accelerator(self, row: int) -> Accelerator | None:
        """The chip of a configuration; None for a device that exists."""
        return None

    def operator_seconds(self, operator: Operator, panels: int) -> float:
        """Seconds of one operator on the device, of a 2D product in so many ``panels``."""
        return self._model.operator_time(operator, panels).device_s

    def kernel_seconds(self, operator: Operator, panels: int, slower: float) -> float:
        """Seconds in which kernels of one operator run where arithmetic is ``slower``, without the
        gaps before them."""
        time = self._model.operator_time(operator, panels)
        return time.arithmetic_s * (1.0 + slower) + time.memory_s

    def machine(self, row: int, memory_bytes: float) -> Machine:
        """Configuration ``row`` with so much memory."""
        return device_machine(self._model, self.cluster, memory_bytes)

    def price(
        self,
        graph: ModelGraph,
        modes: Sequence[Recomputation],
        groups: LayerGroups,
        folder: Path | None,
    ) -> PricedGraph:
        """Layer costs of ``graph``.

        Raises:
            InputError: the device was profiled for other models alone.
        """
        if isinstance(self._model, ProfiledModel):
            operators = (operator for operator, _ in step_operators(graph, Recompute.NONE))
            check_model(self._model, graph.key.model, operators)
        costs = {mode: self._costs.layer_costs(graph, mode, groups) for mode in modes}
        return PricedGraph(costs, costs)

    def source_counts(self, graph: ModelGraph, mode: Recomputation) -> SourceCounts | None:
        """How much of a step was measured; None where the device was not profiled."""
        if isinstance(self._model, ProfiledModel):
            return source_counts(step_operators(graph, mode), self._model)
        return None

    def operator_prices(self, graph: ModelGraph, row: int) -> OperatorCostModel:
        """What prices its operators."""
        return self._model

    def model_times(
        self, graph: ModelGraph, mode: Recomputation, groups: Sequence[LayerGroups]
    ) -> StageTimes:
        """What a stage of all layers takes for each of ``groups``."""
        return self._costs.model_times(graph, mode, groups)

    def in_cluster(self, cluster: Cluster) -> ExistingDevice:
        """The same in another cluster."""
        return replace(self, cluster=cluster)

    def attributed(self, costs: LayerCosts, groups: LayerGroups, row: int) -> LayerCosts:
        """``costs`` of configuration ``row`` alone, attributed to causes."""
        return costs

    def refined(
        self,
        modes: Sequence[Recomputation],
        graph: ModelGraph,
        groups: LayerGroups,
        rows: IntArray,
        node_limit: NodeLimit,
    ) -> PricedGraph:
        """Layer costs, which no node limit changes."""
        return self.price(graph, modes, groups, None)

    def proven(self, graph: ModelGraph, mode: Recomputation, groups: LayerGroups) -> LayerCosts:
        """Layer costs of ``graph``."""
        return self.price(graph, (mode,), groups, None).costs[mode]


@dataclass(frozen=True, eq=False)
class DesignedChips(Hardware):
    """Accelerators of a design ``space``. ``references`` are known chips to compare them with."""

    accelerators: AcceleratorSet
    platform: Platform
    cluster: Cluster
    software: Software
    solver: ScheduleSolver
    references: tuple[ReferenceChip, ...] = ()
    space: DesignSpace | None = None  # that generates the accelerators
    known_metrics: ChipMetrics | None = (
        None  # of chips whose memory and clock the platform has, and whose links the cluster
    )
    on_chip: OnChipMemo = field(default_factory=on_chip_memo)  # of whatever chips and platforms
    _scheduled: dict[tuple[GraphKey, LayerGroups], ScheduledGraph] = field(default_factory=dict)

    @property
    def configurations(self) -> int:
        """How many there are."""
        return len(self.accelerators)

    @cached_property
    def metrics(self) -> ChipMetrics:
        """Area, power, money and carbon of each chip."""
        chips, devices = self.accelerators, self.cluster.num_devices
        streams = np.array(
            [self.platform.at(variant).hbm_bandwidth_bytes_per_s for variant in chips.variants]
        )[chips.variant]
        metrics = ChipMetrics.of(chips, self.space, streams, self.cluster)
        if self.known_metrics is not None:
            network, purchase = metrics.tier_bytes_per_s, purchase_of(self.space, self.cluster)
            metrics = replace(self.known_metrics, devices=devices, stream_bytes_per_s=streams)
            metrics = replace(metrics, tier_bytes_per_s=network, purchase=purchase)
        return replace(metrics, links_disturb=self.software.contention is not None)

    @cached_property
    def generating_space(self) -> DesignSpace | None:
        """The space where the accelerators are all that it generates, none of them closed by bounds
        or left out."""
        space = self.space
        if space is not None and space.generate().fingerprint == self.accelerators.fingerprint:
            return space
        return None

    def cluster_of(self, chip: Accelerator) -> Cluster:
        """The cluster of chips with the links of ``chip``."""
        return with_links_of(self.cluster, chip.variant)

    @cached_property
    def fingerprint(self) -> str:
        """Content key of everything that prices."""
        records = (self.platform, self.cluster, self.software)
        return content_key(
            self.accelerators.fingerprint,
            self.solver.name,
            *(to_json(record).decode() for record in records),
        )

    @property
    def known_functions(self) -> Collection[str]:
        """Vector functions that have a price of their own."""
        return self.platform.vector_functions.cycles_per_element.keys()

    def accelerator(self, row: int) -> Accelerator | None:
        """The chip of a configuration; None for a device that exists."""
        return self.accelerators.accelerator(row)

    def machine(self, row: int, memory_bytes: float) -> Machine:
        """Configuration ``row`` with so much memory."""
        chip = self.accelerators.accelerator(row)
        platform = self.platform.at(chip.variant)
        peak = 2.0 * chip.num_tc * chip.width * chip.depth * platform.frequency_hz
        return Machine(
            "the chip",
            memory_bytes,
            peak,
            platform.hbm_bandwidth_bytes_per_s,
            self.cluster_of(chip),
            self.software,
        )

    def moving_j(self, row: int, moved: TrafficBytes) -> float:
        """Joules of bytes that no operator moves; what is sent is read before and written behind
        the links, as in operators."""
        technology = self.platform.at(self.accelerators.accelerator(row).variant).technology
        in_memory = moved.memory + 2.0 * moved.sent
        return (
            in_memory * technology.hbm_energy.value + moved.sent * technology.network_energy.value
        ) * JOULES_PER_PJ

    def price(
        self,
        graph: ModelGraph,
        modes: Sequence[Recomputation],
        groups: LayerGroups,
        folder: Path | None,
    ) -> PricedGraph:
        """Layer costs of ``graph``."""
        if (graph.key, groups) in self._scheduled:
            return _by_mode(self._scheduled[graph.key, groups], modes)
        what = (graph,), self.accelerators, self.platform
        if folder is None:
            table = populate_estimates(*what, self.on_chip)
        else:
            table = load_or_populate(*what, folder, self.on_chip)
        path = None
        if folder is not None:
            path = layer_times_path(folder, graph, self.fingerprint, groups)
        scheduled = scheduled_graph(graph, table, self._network(graph, groups), self.solver, path)
        self._scheduled[graph.key, groups] = scheduled
        return _by_mode(scheduled, modes)

    def operator_prices(self, graph: ModelGraph, row: int) -> OperatorCostModel:
        """What prices the operators of ``graph`` on one chip."""
        return populate_estimates((graph,), self.accelerators.some(np.array([row])), self.platform)

    def _network(self, graph: ModelGraph, groups: LayerGroups) -> PassNetwork:
        return self.pass_network(
            lambda cluster: GraphNetwork(graph, cluster, groups).seconds, groups.panels
        )

    def pass_network(
        self, of_cluster: Callable[[Cluster], Callable[[Collective], float]], panels: int
    ) -> PassNetwork:
        """The networks of the chips, one for all that have the same links; ``of_cluster`` prices
        collectives."""
        chips, own = self.accelerators, [variant.links for variant in self.accelerators.variants]
        distinct = list(dict.fromkeys(own))
        variants = [chips.variants[own.index(links)] for links in distinct]
        first, *others = (of_cluster(with_links_of(self.cluster, each)) for each in variants)
        if not others:
            return PassNetwork(first, panels)
        network_of = np.array([distinct.index(links) for links in own], dtype=np.int64)[
            chips.variant
        ]
        return PassNetwork(first, panels, tuple(others), network_of)

    def refined(
        self,
        modes: Sequence[Recomputation],
        graph: ModelGraph,
        groups: LayerGroups,
        rows: IntArray,
        node_limit: NodeLimit,
    ) -> PricedGraph:
        """Layer costs, the configurations ``rows`` scheduled up to ``node_limit``."""
        self._scheduled[graph.key, groups] = self._scheduled[graph.key, groups].refined(
            rows, node_limit
        )
        return _by_mode(self._scheduled[graph.key, groups], modes)

    def attributed(self, costs: LayerCosts, groups: LayerGroups, row: int) -> LayerCosts:
        """``costs`` of configuration ``row`` alone, attributed to causes."""
        return attributed_layer_costs(self._scheduled[costs.graph.key, groups], costs.mode, row)

    def scheduled(self, graph: ModelGraph, groups: LayerGroups) -> ScheduledGraph:
        """What ``price`` made of ``graph``."""
        return self._scheduled[graph.key, groups]

    def standing(self, chip: Accelerator) -> DesignedChips:
        """``chip`` alone, on a platform with its memory and clock and a cluster with its links,
        which may all be changed then."""
        if chip.standard == chip:
            row = self.accelerators.find(chip) if self.known_metrics is None else None
            return self.only([chip]) if row is None else self.some_as_priced(np.array([row]))
        metrics = replace(self.only([chip]).metrics, memory_bytes=None)
        platform, cluster = self.platform.at(chip.variant), self.cluster_of(chip)
        return replace(
            self.only([chip.standard]), platform=platform, cluster=cluster, known_metrics=metrics
        )

    def on_platform(self, platform: Platform) -> DesignedChips:
        """The same chips with what ``platform`` gives them."""
        return replace(self, platform=platform, _scheduled={})

    def in_cluster(self, cluster: Cluster) -> DesignedChips:
        """The same in another cluster; what was priced of graphs that the network does not change
        is kept."""
        kept = {key: each for key, each in self._scheduled.items() if not _communicates(each.graph)}
        return replace(self, cluster=cluster, _scheduled=kept)

    def with_money(self, usd: float) -> DesignedChips:
        """The same where so much money is there to buy devices; what was priced is kept."""
        assert self.space is not None  # else nothing is known to cost anything
        return replace(
            self, space=replace(self.space, limits=replace(self.space.limits, cluster_usd=usd))
        )

    def some(self, rows: IntArray) -> DesignedChips:
        """The same with the accelerators ``rows`` alone."""
        known = None if self.known_metrics is None else self.known_metrics.some(rows)
        return replace(
            self, accelerators=self.accelerators.some(rows), known_metrics=known, _scheduled={}
        )

    def some_as_priced(self, rows: IntArray) -> DesignedChips:
        """As ``some``, with what was priced of these accelerators."""
        known = {key: each.some(rows) for key, each in self._scheduled.items()}
        return replace(self.some(rows), _scheduled=known)

    def only(self, accelerators: Sequence[Accelerator]) -> DesignedChips:
        """The same with other accelerators."""
        return replace(
            self, accelerators=AcceleratorSet.of(accelerators), known_metrics=None, _scheduled={}
        )


def _communicates(graph: ModelGraph) -> bool:
    """Whether devices exchange anything within its layers."""
    passes = (operators for layer in graph.layers for operators in (layer.forward, layer.backward))
    return any(
        operator.collective is not None or operator.streamed
        for each in passes
        for operator in each.operators
    )


def _by_mode(scheduled: ScheduledGraph, modes: Sequence[Recomputation]) -> PricedGraph:
    costs = {mode: chip_layer_costs(scheduled, mode) for mode in modes}
    return PricedGraph(
        costs, {mode: chip_layer_costs(scheduled, mode, least=True) for mode in modes}
    )
