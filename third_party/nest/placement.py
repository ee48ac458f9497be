"""NEST's placement problem, solved exactly under NEST's cost (scai-tech/Nest,
``device_placement.cpp``).

A plan cuts the layers, in their given order, into contiguous stages of equally many devices. The
s-th stage from the end sits on devices (s-1)a .. sa-1 of a pipeline, the r-th replica of a pipeline
of S stages begins at device rSa: for a given tensor parallel width, the links of a stage follow
from s alone. ``least[s][i]``, the least possible largest load of layers i.. in *exactly* s stages
(a position is a place), is therefore a dynamic program over O(layers^2) stages for each s, without
devices in its state.

NEST's cost of a plan, with transfers x(l, b) = (b / bandwidth + latency), twice beyond the
innermost level l = 0, and no level faster than those within it:

    load of a stage    longest path of forward times, edges from other stages ready after x at the
                       level to the stage before, plus the same of backward times against the edges,
                       at the level to the stage behind; with recomputation, in all stages but the
                       last, nothing starts backward before the longest path of *backward* times has
                       passed
    memory             copies * parameters + activations + (s - 1) * stash, the stash being the
                       activations, or the bytes entering the stage with recomputation
    time per batch     largest load * (ceil(micro-batches / dp) + S - 1) + synchronisation of the
    first stage's parameters

NEST's ZeRO is left out. Paths are those of the graph, so branches of a stage run side by side.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from phaze_common.array_types import FloatArray, IntArray

from .problem import NestProblem, TreeNetwork, WidthGraph


@dataclass(frozen=True)
class NestPlan:
    """An optimum: the layer ids of every stage, first stage first."""

    seconds: float
    tp: int
    dp: int
    stages: tuple[tuple[int, ...], ...]
    load_s: float  # the largest
    sync_s: float


@dataclass(frozen=True, eq=False)
class StageTables:
    """Costs of the stage [i..j] at entry [..., i, j], by level (levels, layers, layers) of a
    neighbour or for any level."""

    forward_s: FloatArray  # by the level to the stage before
    last_backward_s: FloatArray  # without a stage behind
    backward_s: FloatArray  # by the level to the stage behind
    resident_bytes: FloatArray  # infinite below the diagonal, where there is no stage
    stash_bytes: FloatArray  # for each stage behind
    parameter_bytes: FloatArray


def best_plan(problem: NestProblem) -> NestPlan | None:
    """The plan with the least time per batch, None where none fits."""
    plans = [
        plan for graph in problem.graphs if (plan := _best_of_width(problem, graph)) is not None
    ]
    return min(plans, key=lambda plan: plan.seconds, default=None)


def _best_of_width(problem: NestProblem, graph: WidthGraph) -> NestPlan | None:
    tables = stage_tables(problem, graph)
    network, width, layers = problem.network, graph.devices_per_stage, len(graph.layer_ids)
    sync_s = synchronisation(network, problem.devices.bit_length())
    best: NestPlan | None = None
    least = np.append(np.full(layers, np.inf), 0.0)  # of layers i.. in no stage
    ends: list[IntArray] = []  # [s - 1][i]: last layer of the first of the s stages of layers i..
    for stages in range(1, min(layers, problem.devices // width) + 1):
        before = network.level(stages * width - 1, stages * width)
        behind = network.level((stages - 1) * width - 1, (stages - 1) * width)
        backward_s = tables.backward_s[behind] if stages > 1 else tables.last_backward_s
        fits = tables.resident_bytes + (stages - 1) * tables.stash_bytes <= problem.memory_bytes
        loads = np.where(fits, np.maximum(tables.forward_s[before] + backward_s, least[1:]), np.inf)
        ends.append(loads.argmin(axis=1))
        least = np.append(loads.min(axis=1), np.inf)
        # Layer 0 begins the first stage of a whole plan.
        pipeline = stages * width
        degrees = _degrees(problem, pipeline)
        rounds = np.array(
            [_rounds(problem, degree) + stages - 1 for degree in degrees], dtype=np.float64
        )
        doublings = [degree.bit_length() - 1 for degree in degrees]
        levels = [
            bisect_right(network.group_devices, (degree - 1) * pipeline) for degree in degrees
        ]
        fixed_s, per_byte_s = sync_s[doublings, levels, :, None].swapaxes(0, 1)
        first_sync_s = fixed_s + per_byte_s * tables.parameter_bytes[0]
        seconds = rounds[:, None] * loads[0] + first_sync_s
        choice, end = divmod(int(seconds.argmin()), layers)
        if seconds[choice, end] < (best.seconds if best else np.inf):
            best = NestPlan(
                seconds=float(seconds[choice, end]),
                tp=graph.tp,
                dp=degrees[choice],
                stages=_stages(graph, end, ends[-2::-1]),
                load_s=float(loads[0, end]),
                sync_s=float(first_sync_s[choice, end]),
            )
    return best


def stage_tables(problem: NestProblem, graph: WidthGraph) -> StageTables:
    """Times, memory and parameters of every interval of layers."""
    layers, sizes = len(graph.layer_ids), graph.edge_bytes
    transfers = transfer_s(problem.network, sizes)
    forward_s = _longest_paths(graph.forward_s, graph.sources, graph.targets, transfers)
    # Backward is forward on the layers counted from the end; edges that cost nothing give the bare
    # path for recomputation.
    mirrored = _longest_paths(
        graph.backward_s[::-1],
        tuple(layers - 1 - target for target in graph.targets),
        tuple(layers - 1 - source for source in graph.sources),
        np.vstack([transfers, np.zeros(len(sizes))]),
    )
    paths = mirrored[:, ::-1, ::-1].transpose(0, 2, 1)
    entering = np.zeros((layers, layers))  # [i, v]: bytes into layer v of a stage that starts at i
    for source, target, size in zip(graph.sources, graph.targets, sizes, strict=True):
        entering[source + 1 : target + 1, target] += size
    parameters = _interval_sums(graph.parameter_bytes)
    activations = _interval_sums(graph.activation_bytes)
    resident = problem.parameter_copies * parameters + activations
    return StageTables(
        forward_s=forward_s,
        last_backward_s=paths[-1],
        # NEST prices the second forward pass with backward times.
        backward_s=np.maximum(paths[:-1], 2.0 * paths[-1]) if problem.recompute else paths[:-1],
        resident_bytes=np.where(np.tri(layers, k=-1, dtype=bool), np.inf, resident),
        stash_bytes=np.cumsum(entering, axis=1) if problem.recompute else activations,
        parameter_bytes=parameters,
    )


def transfer_s(network: TreeNetwork, sizes: FloatArray) -> FloatArray:
    """Seconds (levels, edges) of tensors of ``sizes`` bytes between stages whose devices first meet
    at each level."""
    bandwidth = np.minimum.accumulate(network.bandwidth_bytes_per_s)
    seconds = sizes / bandwidth[:, None] + network.latency_s[:, None]
    seconds[1:] *= 2.0
    return seconds


def synchronisation(network: TreeNetwork, most_doublings: int) -> FloatArray:
    """Seconds, fixed and for each parameter byte, to synchronise gradients: (doublings, levels, 2).

    Entry [k, l] is of 2^k up to 2^(k+1) - 1 replicas that first meet at level l; bandwidths are as
    given, and what the levels below took is charged once more at each further one.
    """
    seconds = np.zeros((most_doublings, len(network.group_devices), 2))
    seconds[1:, 0, 0] = network.latency_s[0]
    seconds[1:, 0, 1] = 0.5 ** np.arange(most_doublings - 1) / network.bandwidth_bytes_per_s[0]
    seconds = np.cumsum(seconds, axis=0)
    once_more = np.zeros_like(seconds[:, 0])
    for level in range(1, len(network.group_devices)):
        price = 2.0 * np.array(
            [network.latency_s[level], 1.0 / network.bandwidth_bytes_per_s[level]]
        )
        seconds[:, level] = seconds[:, level - 1] + price + once_more
        once_more = once_more + seconds[:, level]
    return seconds


def _longest_paths(
    work_s: FloatArray, sources: tuple[int, ...], targets: tuple[int, ...], ready_s: FloatArray
) -> FloatArray:
    """Longest path of the layers i..j at [l, i, j], 0 below the diagonal; edges from outside arrive
    after ``ready_s[l]``."""
    layers = len(work_s)
    entering: list[list[int]] = [[] for _ in range(layers)]
    for edge, target in enumerate(targets):
        entering[target].append(edge)
    finish = np.zeros((len(ready_s), layers, layers))  # of layer v in a stage that starts at i
    for layer in range(layers):
        start = np.zeros((len(ready_s), layer + 1))
        for edge in entering[layer]:
            within = sources[edge] + 1  # stages that start so early hold the source
            np.maximum(start[:, :within], finish[:, :within, sources[edge]], out=start[:, :within])
            np.maximum(start[:, within:], ready_s[:, edge, None], out=start[:, within:])
        finish[:, : layer + 1, layer] = start + work_s[layer]
    return np.maximum.accumulate(finish, axis=2)


def _interval_sums(values: FloatArray) -> FloatArray:
    """Sums over [i..j] at [i, j]; 0 below the diagonal."""
    return np.cumsum(np.triu(np.broadcast_to(values, (len(values), len(values)))), axis=1)


def _degrees(problem: NestProblem, pipeline_devices: int) -> list[int]:
    """Data-parallel degrees of which one is optimal.

    Synchronisation depends on the degree only through its doublings and the level where the
    replicas meet, so the largest degree of each kind is best; the smallest one that leaves a
    pipeline as many micro-batches is as good.
    """
    most = min(problem.devices // pipeline_devices, problem.micro_batches)
    largest = {most}
    largest.update(2**doublings - 1 for doublings in range(1, most.bit_length()))
    largest.update(
        -(-group // pipeline_devices)
        for group in problem.network.group_devices
        if group < most * pipeline_devices
    )
    return sorted({-(-problem.micro_batches // _rounds(problem, degree)) for degree in largest})


def _rounds(problem: NestProblem, degree: int) -> int:
    return -(-problem.micro_batches // degree)


def _stages(graph: WidthGraph, end: int, following: list[IntArray]) -> tuple[tuple[int, ...], ...]:
    """Layer ids of a first stage [0..end] and of the stages after it, whose last layers by first
    layer are ``following``."""
    bounds = [0, end + 1]
    for last in following:
        bounds.append(int(last[bounds[-1]]) + 1)
    return tuple(graph.layer_ids[first:after] for first, after in pairwise(bounds))
