"""Random small models, hardware and plan spaces, and every plan and cut of them by enumeration:
what a search must agree with."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.own_links import OwnLinks
from Estimator.chips.technology import Quantity
from Estimator.devices.files import load_software
from Estimator.devices.operator_cost import PassStarts
from Estimator.devices.software import Sharding, Software
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.contention import Contention
from Estimator.network.own_links import over_links
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import Layout, UniformPlan
from Estimator.plans.groups import LayerGroups, layer_groups
from Estimator.plans.layer_costs import LayerCosts, PassCosts, layer_sizes, moded_layers
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import Machine
from Estimator.plans.stage_totals import TIME_COLUMNS, StageTimes, time_columns, times_of
from Estimator.plans.uniform_plans import ORDERS
from GraphExtractor.graph import (
    GraphKey,
    LayerGraph,
    LayerTensor,
    ModelGraph,
    OperatorGraph,
    Recompute,
    SavedBytes,
    SharedTensor,
    SparseTable,
)
from phaze_common.choices import (
    Combine,
    ExpertOverlap,
    ExpertWidth,
    FrontAxis,
    GroupOrder,
    KeyExchange,
    Objective,
    TensorLayout,
)
from phaze_common.progress import SilentProgress
from Solver.chip_metrics import OF_WHOLE_CHIPS, ChipMetrics, UseCosts
from Solver.designs.search_context import SearchContext, Stores
from Solver.designs.search_criteria import USUAL
from Solver.hardware import Hardware, PricedGraph
from Solver.paths.layer_graph import Edge, edges_between
from Solver.plans.space import PlanSpace
from Solver.problem import ModelProblem, SearchProblem
from Solver.purchase import Purchase
from Solver.schedule.solver import NodeLimit

FloatArray = NDArray[np.float64]
Generator = np.random.Generator

NOTHING = OperatorGraph((), ())
OBJECTIVES = tuple(
    each for each in Objective if each not in OF_WHOLE_CHIPS
)  # of chips of which little is known
MODES = Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL  # as ``SavedBytes`` lists them
STREAM_BYTES_PER_S = 1e3  # of a step of the optimizer; all numbers here are of order 1


@dataclass(frozen=True)
class RandomModel:
    """What a random model is, whatever it is sharded by: arrays are of distinct layers."""

    seed: int
    sequence: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]  # of the tensor that each layer makes
    parameters: tuple[float, ...]
    expert_share: tuple[float, ...]
    tied: bool
    tables: tuple[
        tuple[SparseTable, ...], ...
    ] = ()  # with sparse gradients, besides the other parameters

    def graph(self, key: GraphKey) -> ModelGraph:
        """Its training graph."""
        random = np.random.default_rng(
            [self.seed, key.micro_batch_size, key.tp, key.cp, int(key.sequence_parallel)]
        )
        layers = []
        held = np.array(self.parameters) / key.tp
        twice = held * (0.9 if key.tp2 > 1 else 0.0) / key.tp2  # of a 2D layout
        experts = held * (0.0 if key.tp2 > 1 else 1.0) * self.expert_share
        own = experts * key.tp / key.expert_tp / key.ep
        counts = held - experts + own - twice * (key.tp2 - 1)
        tied = twice if key.tp2 > 1 else counts - own
        tied_first = (twice if key.tp2 > 1 else counts)[self.sequence[0]]
        shared = self.kept_together(key.micro_batch_size)
        for index, (count, expert) in enumerate(zip(counts, own, strict=True)):
            none = float(random.uniform(2, 6))
            alone = [round(1000 * none * part * key.micro_batch_size) for part in (1.0, 0.6, 0.1)]
            kept = [
                size + self._most_shared(index, mode, shared)
                for size, mode in zip(alone, MODES, strict=True)
            ]
            saved = SavedBytes(*kept, *(max(kept[0] - size, 0) for size in kept[1:]))
            last = self.tied and index == self.sequence[-1]
            read = [
                replace(each, rows_read=min(each.rows, each.rows_read * key.micro_batch_size))
                for each in self.of(index)
            ]
            layers.append(
                LayerGraph(
                    name=f"layer{index}",
                    forward=NOTHING,
                    backward=NOTHING,
                    backward_selective=NOTHING,
                    parameter_count=round(1000 * count)
                    + sum(table.parameter_count for table in read),
                    matmul_parameter_count=0,
                    expert_parameter_count=round(1000 * expert),
                    twice_divided_count=round(1000 * twice[index]),
                    tied_count=round(1000 * min(tied_first, tied[index])) if last else 0,
                    saved=saved,
                    live_bytes=(round(1000 * random.uniform(0, 4)),),
                    sparse_tables=tuple(read),
                )
            )
        sizes = random.integers(0, 3, (len(self.sequence), 2)).tolist()
        tensors = tuple(
            LayerTensor(start, end, *sizes[start]) for start, end in enumerate(self.ends) if end
        )
        return ModelGraph(key, tuple(layers), self.sequence, tensors, 1, shared=shared)

    def kept_together(self, micro_batch_size: int) -> tuple[SharedTensor, ...]:
        """Tensors that some layers keep under each mode of recomputation: neighbours, all, or
        any."""
        random = np.random.default_rng([self.seed, 3])
        tensors = []
        for _ in range(int(random.integers(0, 4)) if len(self.sequence) > 1 else 0):
            places = np.flatnonzero(
                random.random(len(self.sequence)) < random.choice([0.3, 0.7, 1.0])
            )
            if random.random() < 0.5:
                places = int(random.integers(len(self.sequence) - 1)) + np.arange(2)
            kept = [
                tuple(places[random.random(len(places)) < part].tolist())
                for part in (1.0, 0.9, 0.5)
            ]
            tensors.append(
                SharedTensor(None, int(random.integers(0, 3000)) * micro_batch_size, *kept)
            )
        return tuple(tensors)

    def _most_shared(self, index: int, mode: Recompute, shared: Sequence[SharedTensor]) -> int:
        """What any layer like ``index`` shares: all of them keep as much, alone or together."""
        places = [place for place, each in enumerate(self.sequence) if each == index]
        return max(
            sum(tensor.bytes for tensor in shared if place in tensor.kept_by(mode))
            for place in places
        )

    def of(self, layer: int) -> tuple[SparseTable, ...]:
        """Tables of a distinct layer, as a sample reads them."""
        return self.tables[layer] if self.tables else ()

    def with_tables(self) -> RandomModel:
        """The same with tables of which a batch reads little, most, or every row."""
        random = np.random.default_rng([self.seed, 2])
        few = (
            SparseTable(int(rows), int(width), int(read))
            for rows, width, read in random.integers(1, (400, 9, 40), (9, 3))
        )
        kinds = [replace(each, rows_read=min(each.rows, each.rows_read)) for each in few]
        chosen = [random.integers(0, len(kinds), random.integers(0, 4)) for _ in self.parameters]
        return replace(self, tables=tuple(tuple(kinds[kind] for kind in each) for each in chosen))


def random_model(random: Generator, layers: int, *, branching: bool, experts: bool) -> RandomModel:
    """A chain with an embedding, blocks and a head (or unlike layers all over), skips included, or
    layers that branch."""
    alike = random.random() < 0.6
    sequence = (0, *[1] * (layers - 2), 2) if alike and layers > 2 else tuple(range(layers))
    distinct = max(sequence) + 1
    parameters = np.round(random.uniform(0.3, 3.0, distinct), 2)
    parameters[random.random(distinct) < 0.15] = 0.0
    if branching:
        density = random.uniform(0.1, 0.7)
        ends = [
            tuple(end for end in range(start + 1, layers) if random.random() < density)
            for start in range(layers)
        ]
    else:
        skips = random.random(layers) < 0.2
        ends = [
            (start + 1, *([layers - 1] if skips[start] and start < layers - 2 else []))
            for start in range(layers - 1)
        ]
    share = (
        np.round(
            np.where(random.random(distinct) < 0.7, random.uniform(0.3, 1.0, distinct), 0.0), 2
        )
        * experts
    )
    share[0] = 0.0
    tied = bool(layers > 1 and sequence[0] != sequence[-1] and random.random() < 0.5)
    return RandomModel(
        int(random.integers(1 << 30)), sequence, tuple(ends), (*parameters,), (*share,), tied
    )


@dataclass(frozen=True, eq=False)
class RandomHardware(Hardware):
    """``count`` configurations whose layer times are random; as chips have them (whole makespans),
    or as a device (by cause).

    ``excess_of`` (configurations,) says by what factor times are given too long at most.
    """

    seed: int
    count: int
    cluster: Cluster
    software: Software
    whole: bool
    alike: bool = False  # configurations that tie often
    excess_of: FloatArray = field(default_factory=lambda: np.ones(1))
    memories: tuple[
        int, ...
    ] = ()  # as they are sold, one of which each configuration has; none: as much as is asked
    links: tuple[
        OwnLinks, ...
    ] = ()  # one of which each configuration has; none: as the cluster has them
    purchase: Purchase | None = None  # with whose money devices that are sold are bought
    waits: bool = (
        True  # whether passes of some begin behind waits, which bounds of shapes know nothing of
    )

    @property
    def configurations(self) -> int:
        return self.count

    @cached_property
    def metrics(self) -> ChipMetrics:
        random = np.random.default_rng([self.seed, 1])
        area = (
            random.choice([1.0, 2.0], self.count)
            if self.alike
            else random.integers(1, 8, self.count).astype(float)
        )
        if not self.memories:
            return ChipMetrics.of_areas(area)
        static_w, owning_usd, embodied_kg = random.integers(1, 4, (3, self.count)) * np.array(
            [[1.0], [100.0], [10.0]]
        )
        peak_w = static_w + np.random.default_rng([self.seed, 8]).integers(1, 4, self.count)
        streams = random.choice([1000.0, 3000.0], self.count) * STREAM_BYTES_PER_S
        held = random.choice(np.array(self.memories, dtype=np.float64), self.count)
        use = UseCosts(service_s=1e4, usd_per_j=0.1, kg_per_j=0.01, host_w=0.5)
        devices = self.cluster.num_devices
        known = area, static_w, owning_usd, embodied_kg, peak_w, streams, held, devices, use
        if not self.links:
            return ChipMetrics(*known, purchase=self.purchase)
        tiers = np.array(
            [
                [tier.bandwidth_bytes_per_s for tier in self.cluster_of(row).tiers]
                for row in range(self.count)
            ]
        )
        return ChipMetrics(*known, tiers, links_disturb=True, purchase=self.purchase)

    def cluster_of(self, row: int) -> Cluster:
        """The cluster of chips with the links of a configuration."""
        if not self.links:
            return self.cluster
        return over_links(
            self.cluster,
            self.links[np.random.default_rng([self.seed, 8, row]).integers(len(self.links))],
        )

    @property
    def fingerprint(self) -> str:
        return f"random {self.seed} {self.count}"

    @property
    def known_functions(self) -> Collection[str]:
        return ()

    def accelerator(self, row: int) -> Accelerator | None:
        return (
            Accelerator(1, 1, 1, 1, 1, row, float(self.metrics.area_mm2[row]))
            if self.whole
            else None
        )

    def machine(self, row: int, memory_bytes: float) -> Machine:
        random = np.random.default_rng([self.seed, 6])
        starts = (
            PassStarts(*random.uniform(0, 0.2, 2).tolist())
            if self.waits and random.random() < 0.5
            else PassStarts()
        )
        stream = (
            float(self.metrics.stream_bytes_per_s[row])
            if self.memories
            else 1000 * STREAM_BYTES_PER_S
        )
        varied = (
            0.0 if self.whole else float(random.choice([0.0, 0.05]))
        )  # designed chips are alike
        software = replace(
            self.software,
            between_iterations=Quantity(float(random.choice([0.0, 1.0])), "s", "random"),
        )
        return Machine(
            "random",
            memory_bytes,
            1e12,
            stream,
            self.cluster_of(row),
            software,
            pass_starts=starts,
            variation=varied,
            orthogonalises=True,
        )

    def price(
        self,
        graph: ModelGraph,
        modes: Sequence[Recompute],
        groups: LayerGroups,
        folder: Path | None,
    ) -> PricedGraph:
        costs = {mode: self.costs(graph, mode, groups) for mode in modes}
        return PricedGraph(costs, {mode: self.at_least(each) for mode, each in costs.items()})

    def model_times(
        self, graph: ModelGraph, mode: Recompute, groups: Sequence[LayerGroups]
    ) -> StageTimes | None:
        if self.count > 1:
            return None
        each = [
            time_columns(self.at_least(self.costs(graph, mode, one)), 0).sum(axis=0)
            for one in groups
        ]
        return times_of(np.array(each).reshape(-1, TIME_COLUMNS))

    def at_least(self, costs: LayerCosts) -> LayerCosts:
        """What ``costs`` can be at least."""
        excess = np.broadcast_to(self.excess_of, self.count)[:, None]
        if not (excess > 1.0).any():
            return costs

        def shorter(passes: PassCosts) -> PassCosts:
            return PassCosts(
                **{each.name: getattr(passes, each.name) / excess for each in fields(PassCosts)}
            )

        return replace(
            costs,
            **{
                name: shorter(getattr(costs, name)) for name in ("forward", "recompute", "backward")
            },
        )

    def attributed(self, costs: LayerCosts, groups: LayerGroups, row: int) -> LayerCosts:
        return costs.rows(np.array([row]))

    def refined(
        self,
        modes: Sequence[Recompute],
        graph: ModelGraph,
        groups: LayerGroups,
        rows: NDArray[np.int64],
        node_limit: NodeLimit,
    ) -> PricedGraph:
        return self.price(graph, modes, groups, None)

    def costs(self, graph: ModelGraph, mode: Recompute, groups: LayerGroups) -> LayerCosts:
        """Layer costs of ``graph``: the more devices share it, the faster."""
        key = graph.key
        what = [
            self.seed,
            key.micro_batch_size,
            key.tp,
            key.cp,
            key.ep,
            int(key.sequence_parallel),
            len(graph.sequence),
        ]
        random = np.random.default_rng([*what, zlib.crc32(key.model.encode())])
        speed = (
            random.choice([1.0, 2.0], (self.count, 1))
            if self.alike
            else random.uniform(0.7, 2.0, (self.count, 1))
        )
        nearer = 1.0 + zlib.crc32(repr(groups).encode()) % 5 / 10  # where the groups lie matters
        speed = speed * key.tp * key.cp / key.micro_batch_size * nearer
        layers = len(graph.layers)

        def draw(low: float, high: float) -> FloatArray:
            rows = 1 if self.alike else self.count
            return np.round(random.uniform(low, high, (rows, layers)), 3) / speed

        distinct, _ = moded_layers(graph, mode)
        index = [each.index for each in distinct]
        full = np.array([each.mode is Recompute.FULL for each in distinct])
        selective = np.array([each.mode is Recompute.SELECTIVE for each in distinct])
        if self.whole:
            forward, backward, more = draw(0.1, 1.0), draw(0.2, 2.0), draw(0.0, 0.2)
            passes = [
                forward[:, index],
                forward[:, index] * full,
                (backward[:, index] + more[:, index] * selective),
            ]
            forward_costs, recompute, backward_costs = (PassCosts.of_total(each) for each in passes)
            accumulation = np.zeros_like(passes[0])
            joules = random.integers(1, 4, (self.count, layers)).astype(float)
            energy = joules[:, index] * (1.0 + 0.5 * full)
        else:
            forward_costs, backward_costs = (
                self._device_pass(draw, index, factor) for factor in (1.0, 2.0)
            )
            again = [
                getattr(forward_costs, name) * (full + 0.3 * selective)
                for name in vars(forward_costs)
            ]
            recompute = PassCosts(*again)
            adds_up = (
                np.random.default_rng([self.seed, 7]).random() < 0.5
            )  # else products do, as of fused accumulation
            accumulation, energy = draw(0.0, 0.1)[:, index] * adds_up, None
        most_s = np.random.default_rng([*what, 13]).uniform(0.0, 0.3, (layers, 2))
        matrices_s = np.concatenate([1.5 * most_s, most_s], axis=1)[index]
        sizes = replace(layer_sizes(graph, mode), matrices_s=matrices_s)
        if (
            key.tp2 > 1
        ):  # what is on its way to products needs room, the less the more panels there are
            sizes = replace(sizes, workspace_bytes=sizes.workspace_bytes + 4000.0 / groups.panels)
        return LayerCosts(
            graph, mode, sizes, forward_costs, recompute, backward_costs, accumulation, energy
        )

    @staticmethod
    def _device_pass(draw, index: list[int], factor: float) -> PassCosts:  # type: ignore[no-untyped-def]
        arithmetic, memory, launch, host, tensor, sequence, context, expert = (
            factor * draw(0.0, high)[:, index] for high in (1.0, 0.3, 0.1, 1.0, 0.4, 0.4, 0.2, 0.2)
        )
        return PassCosts(
            arithmetic, memory, launch, host, 0.8 * arithmetic, tensor, sequence, context, expert
        )


def random_software(random: Generator) -> Software:
    """A framework that overlaps what it likes."""
    software = load_software("megatron_2022")
    overlaps = {
        name: bool(random.random() < 0.5)
        for name in ("overlap_gradients", "overlap_tensor", "overlap_pipeline")
    }
    reserved = replace(software.reserved_memory, value=float(random.choice([0.0, 1000.0])))
    gradient = replace(software.gradient_bytes, value=float(random.choice([2.0, 4.0])))
    near, far, slower = np.round(random.random(3), 2).tolist()
    slowdown = {
        "products": {"traffic_in_first_tier": near, "traffic_beyond": far},
        "traffic_beyond": {"products": slower},
    }
    contention = Contention(
        "random", replace(reserved, value=0.01, unit="fraction"), slowdown, "random"
    )
    return replace(
        software,
        reserved_memory=reserved,
        gradient_bytes=gradient,
        contention=contention,
        overlap_experts=tuple(ExpertOverlap)[round(100 * near) % len(ExpertOverlap)],
        sharding=random_sharding(far, slower) if round(100 * far) % 2 else None,
        **overlaps,
    )  # type: ignore[arg-type]


def random_sharding(one: float, other: float) -> Sharding:
    """Gathers of ZeRO-3 in several collectives, of lists of parts, some of them twice."""
    values = {
        "hidden": (one, "fraction"),
        "copies": (100 * other, "bytes"),
        "collectives": (1.0 + round(100 * other) % 4, "count"),
        "part": (0.01 * one, "s"),
        "live": (1.0 + round(1000 * other), "count"),
    }
    return Sharding(
        **{name: Quantity(value, unit, "random") for name, (value, unit) in values.items()}
    )


def random_cluster(random: Generator, devices: int, tiers: int) -> Cluster:
    """Links of order 1 second per message."""
    bandwidth, latency = 1e3 * 10.0 ** random.uniform(-0.5, 1.5), float(random.choice([0.0, 0.02]))
    sizes = [[16], [[2, 16], [4, 16], [3, 16]][int(random.integers(3))], [2, 4, 16]][tiers - 1]
    links = [
        Tier(str(k), size, bandwidth / float(random.uniform(1, 6)) ** k, latency * (k + 1))
        for k, size in enumerate(sizes)
    ]
    return Cluster("random", 16, tuple(links)) if devices <= 16 else Cluster("none", 0, ())


TWO_D, RING = (
    Layout(layout=TensorLayout.TWO_D, tp2=2),
    Layout(cp=2, exchange=KeyExchange.RING),
)
PANELS = 1, 2, 8


def random_space(random: Generator, layers: int, cluster: Cluster, *, experts: bool) -> PlanSpace:
    """A space of some hundred plans at most."""
    some = lambda *values: tuple(  # noqa: E731
        sorted({values[int(k)] for k in random.integers(0, len(values), 2)})
    )
    devices = int(random.choice([1, 2, 3, 4, 6, 8]))
    pinned = bool(random.random() < 0.2)
    recompute = tuple(mode for mode in Recompute if random.random() < 0.5) or (Recompute.NONE,)
    return PlanSpace(
        devices=devices,
        use_all_devices=bool(random.random() < 0.4),
        base=UniformPlan(
            global_batch_size=int(random.choice([2, 5, 8, 12])),
            optimizer=str(random.choice(["adam", "sgd"])),
        ),
        sequence_length=8,
        tp_widths=(1, 2) if random.random() < 0.4 else (1,),
        micro_batch_sizes=(1, 2) if random.random() < 0.3 else (1,),
        recompute=recompute,
        sequence_parallel=(False, True) if random.random() < 0.5 else (False,),
        cp_degrees=some(1, 1, 2) if random.random() < 0.4 else (1,),
        ep_degrees=(1, 2, 4) if experts else (1,),
        expert_widths=tuple(ExpertWidth) if experts else (ExpertWidth.SAME,),
        pp_degrees=some(1, 2, 3) if pinned else None,
        dp_degrees=some(1, 2, 4) if random.random() < 0.2 else None,
        interleave=None if random.random() < 0.4 else (1,),
        zero_stages=some(0, 1, 2, 3),
        group_orders=ORDERS[: 2 + layers % 2],
        capacities=tuple(capacities(cluster, devices)),
        layouts=random_layouts(layers, experts=experts),
        overlap_gradients=((False,), (False, True), (True,))[int(random.integers(3))],
        overlap_tensor=((None,), (False, True))[int(random.integers(2))],
    )


def random_layouts(layers: int, *, experts: bool) -> tuple[Layout, ...]:
    """None, or a 2D one with several numbers of panels and a ring; with experts rings, some of
    which divide them."""
    if layers % 3 == 1:
        return ()
    return (
        (RING, replace(RING, ep=2))
        if experts
        else (*(replace(TWO_D, panels=panels) for panels in PANELS[:layers]), RING)
    )


def every_shape(space: PlanSpace) -> Iterator[UniformPlan]:
    """Every combination of what decides the seconds of a layer, whether or not any plan has it."""
    axes = (
        space.tp_widths,
        space.cp_degrees,
        space.ep_degrees,
        space.micro_batch_sizes,
        space.recompute,
        space.sequence_parallel,
        space.expert_widths,
    )
    for tp, cp, ep, size, recompute, sequence, etp in itertools.product(*axes):
        if sequence and (tp == 1 or space.sequence_length % tp):
            continue
        if etp is ExpertWidth.ONE and not sequence:
            continue
        for overlap in space.overlap_tensor if sequence else (None,):
            shape = replace(
                space.base,
                tp=tp,
                cp=cp,
                ep=ep,
                etp=etp,
                micro_batch_size=size,
                recompute=recompute,
                sequence_parallel=sequence,
                overlap_tensor=overlap,
            )
            yield from every_order(space, shape)
    for layout, size, recompute in itertools.product(
        space.layouts, space.micro_batch_sizes, space.recompute
    ):
        yield from every_order(
            space,
            replace(space.base, micro_batch_size=size, recompute=recompute).with_layout(layout),
        )


def every_order(space: PlanSpace, shape: UniformPlan) -> Iterator[UniformPlan]:
    """The shape by orders of groups, and with its groups wherever they can be assigned to."""
    yield shape
    if shape.expert_tp < shape.tp:
        return
    placed = every_assignment(space, tp=shape.tp, tp2=shape.tp2, cp=shape.cp, ep=shape.ep)
    yield from (replace(shape, group_order=groups) for groups in {each.groups for each in placed})


def capacities(cluster: Cluster, devices: int) -> list[int]:
    """Devices, or blocks, that a block of each tier holds; of the last tier as many as ``devices``
    fill."""
    sizes = [1, *(tier.group_size for tier in cluster.tiers[:-1]), devices]
    return [max(1, outer // inner) for inner, outer in itertools.pairwise(sizes)]


def products(number: int, places: int) -> list[tuple[int, ...]]:
    return [
        each
        for each in itertools.product(range(1, number + 1), repeat=places)
        if math.prod(each) == number
    ]


@lru_cache(maxsize=4096)
def every_assignment(space: PlanSpace, **degrees: int) -> list[Assignment]:
    """Where axes of these degrees can lie in the tiers; replicas and stages of any number where no
    degrees of them are given."""
    tiers = len(space.capacities)
    if GroupOrder.TIERS not in space.group_orders or tiers == 1:
        return []
    names = ("tp", "cp", "ep", "dp", "pp", "tp2")
    each = [products(degrees[name], tiers) if name in degrees else [(1,) * tiers] for name in names]
    return [
        Assignment(*parts) for parts in itertools.product(*each) if fits(Assignment(*parts), space)
    ]


def fits(assigned: Assignment, space: PlanSpace) -> bool:
    axes = assigned.tp, assigned.tp2, assigned.cp, assigned.dp, assigned.pp
    return all(math.prod(each) <= room for *each, room in zip(*axes, space.capacities, strict=True))


def nested_parts(
    plan: UniformPlan, order: GroupOrder, space: PlanSpace
) -> tuple[tuple[int, ...], ...]:
    """Members of every group of each axis in each block of every tier, counted device by device; 0
    where they differ."""
    axes = [plan.tp, plan.tp2, plan.cp, plan.dp, plan.pp]
    inner = (0, 1, 2, 3, 4) if order is GroupOrder.DATA_INNER else (0, 1, 2, 4, 3)
    ranks = np.stack(
        np.unravel_index(np.arange(math.prod(axes)), [axes[axis] for axis in reversed(inner)])
    )[::-1]
    ranks = ranks[[inner.index(axis) for axis in range(5)]]
    blocks = np.cumprod(space.capacities)[:-1]
    found = []
    for axis in range(5):
        _, group = np.unique(np.delete(ranks, axis, axis=0), axis=1, return_inverse=True)
        parts = [1]
        for block in blocks:
            key = group.reshape(-1) * plan.devices + np.arange(plan.devices) // block
            counts = set(np.unique(key, return_counts=True)[1].tolist())
            parts.append(counts.pop() if len(counts) == 1 else 0)
        parts.append(axes[axis])
        found.append(
            tuple(outer // inner if inner else 0 for inner, outer in itertools.pairwise(parts))
        )
    return tuple(found)


def further_in(assigned: Assignment) -> Iterator[Assignment]:
    """The same with a part of one axis in a tier further in."""
    for name in ("tp", "tp2", "cp", "dp", "pp"):
        parts = getattr(assigned, name)
        for outer in range(len(parts)):
            for inner, factor in itertools.product(range(outer), range(2, parts[outer] + 1)):
                if parts[outer] % factor == 0:
                    moved = list(parts)
                    moved[outer], moved[inner] = moved[outer] // factor, moved[inner] * factor
                    yield replace(assigned, **{name: tuple(moved)})


def every_plan(space: PlanSpace, shape: UniformPlan, layers: int) -> Iterator[UniformPlan]:
    """Every plan of a shape by definition: whatever degrees fit, none left out as dominated or as
    another one again."""
    pps = space.pp_degrees or range(1, layers + 1)
    dps = space.dp_degrees or range(1, space.devices + 1)
    for pp, dp in itertools.product(pps, dps):
        plan = replace(shape, pp=pp, dp=dp)
        if (
            pp > layers
            or plan.devices > space.devices
            or (space.use_all_devices and plan.devices < space.devices)
        ):
            continue
        if plan.micro_batch_size * dp > plan.global_batch_size:
            continue
        if dp * plan.cp * plan.tp // plan.expert_tp % plan.ep:
            continue
        blocks = layers - 2
        chunks = [1] + [
            v for v in range(2, layers + 1) if pp > 1 and blocks > 0 and blocks % (pp * v) == 0
        ]
        chunks = [v for v in chunks if space.interleave is None or v in space.interleave]
        chunks = [v for v in chunks if v == 1 or plan.micro_batches % pp == 0]
        orders: list[GroupOrder | Assignment] = [
            order for order in space.group_orders if order is not GroupOrder.TIERS
        ]
        if isinstance(shape.group_order, Assignment):
            placed = every_assignment(
                space, tp=plan.tp, tp2=plan.tp2, cp=plan.cp, ep=plan.ep, dp=dp, pp=pp
            )
            mine = [each for each in placed if each.groups == shape.group_order]
            mine = [
                each
                for each in mine
                if all(c * d % e == 0 for c, d, e in zip(each.cp, each.dp, each.ep, strict=True))
            ]
            nested = [
                nested_parts(plan, order, space)
                for order in orders
                if isinstance(order, GroupOrder) and plan.ep == 1
            ]
            mine = [
                each
                for each in mine
                if (each.tp, each.tp2, each.cp, each.dp, each.pp) not in nested
            ]
            orders = [
                each for each in mine if not any(fits(other, space) for other in further_in(each))
            ]
        for zero, order, overlap, v in itertools.product(
            space.zero_stages, orders, space.overlap_gradients, chunks
        ):
            if shape.shard_groups > 1 and not makes_groups(replace(plan, zero_stage=zero), order):
                continue
            yield replace(
                plan, zero_stage=zero, group_order=order, overlap_gradients=overlap, interleave=v
            )


def makes_groups(plan: UniformPlan, order: GroupOrder | Assignment) -> bool:
    """Whether its replicas make groups that each divide something."""
    groups, copies = plan.shard_groups, plan.dp * plan.sequence_devices
    if not plan.zero_stage or isinstance(order, Assignment) or plan.dp % groups:
        return False
    return plan.divided_copies(copies) % groups == 0 and copies > groups


def every_cut(plan: UniformPlan, layers: int, edges: Sequence[Edge]) -> Iterator[UniformPlan]:
    """The plan with every assignment of layers to its stages in which no tensor leads backwards;
    equal chunks if interleaved."""
    if plan.interleave > 1:
        yield plan
        return
    for stage in _assignments(layers, plan.pp, tuple(edges)):
        order = tuple(sorted(range(layers), key=lambda layer: (stage[layer], layer)))
        sizes = tuple(stage.count(place) for place in range(plan.pp))
        in_order = order == tuple(range(layers))
        yield replace(plan, stage_layers=sizes, layer_order=None if in_order else order)


@lru_cache(maxsize=256)
def _assignments(layers: int, pp: int, edges: tuple[Edge, ...]) -> list[tuple[int, ...]]:
    every = itertools.product(range(pp), repeat=layers)
    return [
        each
        for each in every
        if len(set(each)) == pp and all(each[start] <= each[end] for start, end in edges)
    ]


@dataclass(frozen=True)
class Enumerated:
    """The best cut of one plan on one configuration: the plan, its seconds, bytes of its fullest
    stage; infinite: none fits."""

    plan: UniformPlan
    iteration_s: float
    memory_bytes: float


def best_cut(plan: UniformPlan, costs: LayerCosts, machine: Machine, row: int) -> Enumerated:
    """Price every cut of ``plan``."""
    best = Enumerated(plan, math.inf, 0.0)
    edges = edges_between(costs.graph.tensors)
    rates = PricedPlan(plan, costs, machine, row).rates  # of the degrees, whatever the cut
    for cut in every_cut(plan, len(costs.graph.sequence), edges):
        priced = PricedPlan(cut, costs, machine, row)
        vars(priced)["rates"] = rates
        held = float(priced.memory_bytes.sum(axis=0).max())
        if held <= machine.memory_bytes * (1 + 1e-12):
            seconds = float(priced.finished_s().max()) + priced.step_s
            if seconds < best.iteration_s:
                best = Enumerated(cut, seconds, held)
    return best


@dataclass(frozen=True, eq=False)
class Case:
    """A random problem with what answers it: models by name and hardware. What was enumerated is
    kept, for any objective."""

    problem: SearchProblem
    hardware: RandomHardware
    models: dict[str, RandomModel]
    known: dict[tuple[ModelProblem, UniformPlan, int, float, bool], Enumerated] = field(
        default_factory=dict
    )
    plans: dict[tuple[ModelProblem, UniformPlan, bool], list[tuple[UniformPlan, LayerCosts]]] = (
        field(default_factory=dict)
    )
    cuts: dict[tuple[str, UniformPlan, float, float, Cluster, bytes], Enumerated] = field(
        default_factory=dict
    )

    def run(self) -> SearchContext:
        return SearchContext(
            self.problem, self.hardware, Stores(Path("nowhere"), None, None), SilentProgress()
        )

    def with_base(self, **changes: Any) -> Case:
        """The same with other plans, and nothing known of it."""
        models = tuple(
            replace(one, space=replace(one.space, base=replace(one.space.base, **changes)))
            for one in self.problem.models
        )
        return Case(replace(self.problem, models=models), self.hardware, self.models)

    def in_groups(self, shard_groups: int) -> Case:
        """The same with plans that divide state within groups of replicas, by any ZeRO stage."""
        case = self.with_base(shard_groups=shard_groups)
        models = tuple(
            replace(one, space=replace(one.space, zero_stages=(0, 1, 2, 3)))
            for one in case.problem.models
        )
        return replace(case, problem=replace(case.problem, models=models))

    def graph(self, key: GraphKey) -> ModelGraph:
        return self.models[key.model].graph(key)

    def has_plans(self, model: ModelProblem) -> bool:
        """Whether the space of ``model`` holds any plan."""
        layers = len(self.models[model.name].sequence)
        return any(
            len(list(every_plan(model.space, shape, layers))) for shape in every_shape(model.space)
        )

    def enumerated(
        self,
        model: ModelProblem,
        shape: UniformPlan,
        row: int,
        memory_bytes: float,
        *,
        least: bool = False,
    ) -> Enumerated:
        """The best plan of one shape on one configuration, as layers are priced or as little as
        they may take at ``least``."""
        asked = model, shape, row, memory_bytes, least
        if asked not in self.known:
            self.known[asked] = self._enumerated(*asked)
        return self.known[asked]

    def _enumerated(
        self, model: ModelProblem, shape: UniformPlan, row: int, memory_bytes: float, least: bool
    ) -> Enumerated:
        nothing, every = (
            Enumerated(shape, math.inf, 0.0),
            self.every_plan(model, shape, row, memory_bytes, least=least),
        )
        return min((nothing, *every), key=lambda each: each.iteration_s)

    def every_plan(
        self,
        model: ModelProblem,
        shape: UniformPlan,
        row: int,
        memory_bytes: float,
        *,
        least: bool = False,
    ) -> Iterator[Enumerated]:
        """Every plan of one shape on one configuration with its best cut."""
        machine = self.hardware.machine(row, memory_bytes)
        for plan, costs in self._priced(model, shape, least):
            seconds = _seconds_of(costs, row)  # configurations may be alike
            asked = (
                model.name,
                plan,
                memory_bytes,
                machine.stream_bytes_per_s,
                machine.cluster,
                seconds,
            )
            if asked not in self.cuts:
                self.cuts[asked] = best_cut(plan, costs, machine, row)
            yield self.cuts[asked]

    def _priced(
        self, model: ModelProblem, shape: UniformPlan, least: bool
    ) -> list[tuple[UniformPlan, LayerCosts]]:
        """Every plan of a shape with what its layers cost, on all configurations."""
        asked = model, shape, least
        if asked not in self.plans:
            graph, priced = self.graph(model.graph_key(shape)), {}
            self.plans[asked] = []
            for plan in every_plan(model.space, shape, len(graph.sequence)):
                groups = layer_groups(plan, self.hardware.cluster)
                if groups not in priced:
                    costs = self.hardware.costs(graph, plan.recompute, groups)
                    priced[groups] = self.hardware.at_least(costs) if least else costs
                self.plans[asked].append((plan, priced[groups]))
        return self.plans[asked]


def _seconds_of(costs: LayerCosts, row: int) -> bytes:
    """All that one configuration takes for the layers."""
    passes = (getattr(costs, name) for name in ("forward", "recompute", "backward"))
    arrays = [getattr(each, part.name) for each in passes for part in fields(PassCosts)]
    return b"".join(array[row].tobytes() for array in (*arrays, costs.accumulation_s))


def random_case(seed: int, **given: Any) -> Case:
    """Of the cases from ``seed`` on the first with a plan for every model; ``given`` as of
    ``case_of_seed``."""
    found = (case_of_seed(one, **given) for one in itertools.count(1000 * seed))
    return next(
        case for case in found if all(case.has_plans(model) for model in case.problem.models)
    )


def case_of_seed(
    seed: int,
    *,
    configurations: int = 1,
    models: int = 1,
    most_layers: int = 5,
    memories: int = 1,
    alike: bool = False,
    objective: Objective = Objective.THROUGHPUT,
    excess: float = 1.0,
    tables: bool = False,
    sold: bool = False,
    front: tuple[FrontAxis, ...] = USUAL.front,
    linked: bool = False,
) -> Case:
    """Chips if there are several configurations, else a device; memory from too little to ample, of
    chips as it is ``sold``.

    Those that are ``linked`` have links of their own, of which the first tier gets what they give.
    """
    random = np.random.default_rng(seed)
    problems, named = [], {}
    whole = configurations > 1
    cluster = random_cluster(random, 16, int(random.integers(1, 4)))
    first, *outer = cluster.tiers
    links = (
        tuple(OwnLinks(2, times * first.bandwidth_bytes_per_s) for times in (0.1, 0.5, 3.0))
        if linked
        else ()
    )
    cluster = replace(cluster, tiers=(replace(first, link_parts=1), *outer)) if linked else cluster
    for index in range(models):
        experts, branching = bool(random.random() < 0.3), bool(random.random() < 0.35)
        layers = int(random.integers(1, (4 if branching else most_layers) + 1))
        model = random_model(random, layers, branching=branching, experts=experts)
        named[f"model{index}"] = model.with_tables() if tables else model
        space = random_space(random, layers, cluster, experts=experts)
        problems.append(ModelProblem(f"model{index}", float(random.integers(1, 4)), space))
    sizes = sorted({int(1000 * 10.0 ** random.uniform(1.0, 2.3)) for _ in range(memories)})
    worst = np.where(random.random(configurations) < 0.5, excess, 1.0)
    own = tuple(sizes) if sold else ()
    hardware = RandomHardware(
        seed, configurations, cluster, random_software(random), whole, alike, worst, own, links
    )
    how = list(Combine)[seed % len(Combine)]
    return Case(
        SearchProblem("random", tuple(problems), tuple(sizes), objective, how, front),
        hardware,
        named,
    )


def together(
    how: Combine, values: Sequence[np.ndarray], weights: Sequence[float], own: Sequence[float]
) -> np.ndarray:
    """What the values of models (configurations,) come to; -inf where one has none. ``own``: the
    most of each by itself."""
    parts = np.array(weights) / sum(weights)
    if len(values) == 1:
        return np.asarray(values[0])
    if how is Combine.MEAN:
        return np.asarray(parts @ np.array(values))
    with np.errstate(invalid="ignore"):
        shares = np.array(values) / np.array(own)[:, None]
    if how is Combine.WORST:
        found = shares.min(axis=0)
    elif how is Combine.TIME_SHARED:
        found = parts @ shares
    else:
        found = np.prod(np.maximum(shares, 0.0) ** parts[:, None], axis=0)
    return np.where(np.isneginf(np.array(values)).any(axis=0), -np.inf, found)
