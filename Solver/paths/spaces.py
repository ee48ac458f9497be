"""What bounds and searches take as arrays: the stages there can be on a cluster, and what their
options cost each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from Estimator.network.links import transfer_costs
from Estimator.plans.groups import DeviceGroups, GroupNetwork, as_at_the_start, layer_groups
from Estimator.plans.heterogeneous.messages import MeshBoundary, tier_between, whole_rows_bytes
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.rates import Machine
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.paths.bounds import StageSpace
from Solver.paths.option_tables import AFTER, BACKWARD, FORWARD, STEP, OptionTables
from Solver.paths.path_search import OptionSpace
from Solver.paths.stage_classes import StageClasses
from Solver.paths.stage_options import StageOption


@dataclass(frozen=True)
class PlanLimits:
    """How many devices a plan has (``all_devices``), or may have, and how many stages (None: any
    number up to ``most``)."""

    devices: int
    all_devices: bool
    stage_counts: tuple[int, ...] | None = None
    most: int = 16

    def most_stages(self, least_devices: int, layers: int) -> int:
        """Stages that a plan of a model with ``layers`` layers has at most, where each has
        ``least_devices`` at least."""
        most = max(self.stage_counts) if self.stage_counts else self.most
        return max(min(most, self.devices // least_devices, layers), 1)

    def allowed(self, most: int) -> BoolArray:
        """Whether a plan may have 0, 1, ... stages, shape (most + 1,)."""
        counts = np.zeros(most + 1, np.bool_)
        counts[[count for count in self.stage_counts or range(1, most + 1) if count <= most]] = True
        return counts


def stage_space(
    options: Sequence[StageOption],
    layers: Sequence[RecomputableLayers],
    tables: OptionTables,
    classes: StageClasses,
    machine: Machine,
    limits: PlanLimits,
) -> tuple[StageSpace, OptionSpace]:
    """The arrays of ``options``, which lie in the order of their sizes; ``tables`` are their
    prices."""
    cluster, lattice = machine.cluster, classes.lattice
    sizes = sorted({option.devices for option in options})
    first = np.searchsorted([option.devices for option in options], [*sizes, sizes[-1] + 1])
    graphs: dict[int, int] = {}
    rows_bytes: list[FloatArray] = []
    for option, its in zip(options, layers, strict=True):
        if id(its) not in graphs:
            graphs[id(its)] = len(rows_bytes)
            crosses = classes.crossing(its.stored.graph)
            one_device = np.stack([crosses.activation_bytes, crosses.gradient_bytes])
            rows_bytes.append(whole_rows_bytes(option.degrees, 1.0) * one_device)
    rows = np.stack(rows_bytes)

    def least_of_sizes(seconds: FloatArray) -> FloatArray:
        spans = itertools.pairwise(first.tolist())
        return np.stack([seconds[begin:end].min(axis=0) for begin, end in spans])

    load_s = tables.priced[..., FORWARD] + tables.priced[..., BACKWARD]
    least_s = least_of_sizes(load_s)
    once_s = np.full(least_s.shape, np.inf)
    ends_s = least_of_sizes(load_s + tables.priced[..., AFTER] + tables.priced[..., STEP])
    np.subtract(ends_s, least_s, out=once_s, where=np.isfinite(least_s))
    forward_s, back_s = _least_messages(sizes, rows.min(axis=0), cluster)
    starts = range(limits.devices)
    space = StageSpace(
        first=lattice.first,
        part=lattice.part,
        class_of=classes.class_of,
        depth=lattice.members.sum(axis=1),
        sizes=np.array(sizes),
        lies=np.array([[as_at_the_start(at, size, cluster) for at in starts] for size in sizes]),
        load_s=least_s,
        once_s=once_s,
        forward_s=forward_s,
        back_s=back_s,
        tier_at=np.array([0, *(tier_between(at - 1, at, cluster) for at in starts[1:]), 0]),
        devices=limits.devices,
        all_devices=limits.all_devices,
        micro_batches=options[0].degrees.micro_batches,
        stage_counts=limits.allowed(load_s.shape[2]),
    )
    boundaries = [MeshBoundary.of(option.degrees) for option in options]
    meshes = [
        [each.devices, each.parts, each.tensor, graphs[id(its)], sizes.index(each.devices)]
        for each, its in zip(boundaries, layers, strict=True)
    ]
    transfers = transfer_costs(cluster)
    tied, tied_s = _tied(options, layers, machine, limits.devices)
    return space, OptionSpace(
        first=first,
        priced=tables.priced,
        meshes=np.array(meshes),
        rows_bytes=rows,
        gather_s=_gathers(options, boundaries, rows, cluster),
        tier_sizes=np.array([tier.group_size for tier in cluster.tiers]),
        latency_s=transfers.latency_s,
        per_byte_s=transfers.per_byte_s,
        tied=tied,
        tied_s=tied_s,
    )


def _least_messages(
    sizes: Sequence[int], rows_bytes: FloatArray, cluster: Cluster
) -> tuple[FloatArray, FloatArray]:
    """Least seconds of what a stage of each size sends into every node, and back from it, shapes
    (tiers, sizes, nodes).

    Whoever gets it, its devices send all of ``rows_bytes`` (2, nodes) together.
    """
    costs = transfer_costs(cluster)
    tiers = np.arange(len(cluster.tiers), dtype=np.int8)[:, None, None]
    sent = rows_bytes[:, None, None, :] / np.array(sizes)[None, None, :, None]
    return costs.seconds(sent[0], tiers), costs.seconds(sent[1], tiers)


def _gathers(
    options: Sequence[StageOption],
    boundaries: Sequence[MeshBoundary],
    rows_bytes: FloatArray,
    cluster: Cluster,
) -> FloatArray:
    """Seconds in which each option's tensor-parallel group gathers what every graph sends, shape
    (options, graphs, 2, nodes)."""
    found = np.zeros((len(options), *rows_bytes.shape))
    known: dict[tuple[DeviceGroups, int], FloatArray] = {}
    kind = CollectiveKind.ALL_GATHER
    for number, (option, boundary) in enumerate(zip(options, boundaries, strict=True)):
        if boundary.tensor > 1:
            groups = layer_groups(option.degrees, cluster).tensor
            key = groups, boundary.parts
            if key not in known:
                network = GroupNetwork(groups, cluster)
                known[key] = network.many_seconds(kind, rows_bytes / boundary.parts)
            found[number] = known[key]
    return found


def _tied(
    options: Sequence[StageOption],
    layers: Sequence[RecomputableLayers],
    machine: Machine,
    devices: int,
) -> tuple[IntArray, FloatArray]:
    """Rank of what each option shares with the other end of a pipeline, and seconds of each rank
    over every stride."""
    payloads = [
        its.stored.sizes.all_tied * plan_rates(option.degrees, machine).gradient_bytes
        for option, its in zip(options, layers, strict=True)
    ]
    ranks, kind = sorted(set(payloads)), CollectiveKind.ALL_REDUCE
    seconds = np.zeros((len(ranks), devices))
    for rank, payload in enumerate(ranks):
        for stride in range(1, devices if payload else 1):
            seconds[rank, stride] = collective_s(kind, payload, 2, stride, machine.cluster)
    return np.array([ranks.index(payload) for payload in payloads]), seconds
