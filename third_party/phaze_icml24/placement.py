"""Phaze's device placement, exactly: its stage loads, memory, objective and device counts
(``device_placement.cpp``).

The original keeps the number of devices in the state of its dynamic program. Here a state counts
stages: q that occupy the tensor parallel width and r that occupy one device, so the cost does not
depend on the cluster. ``best[q, r, i]`` is the least possible largest load of layers i.. in at most
q and r stages, where a stage added as the (q + r)-th from the end is checked and priced at that
position; the optimum is represented at its own numbers of stages, all other states are feasible and
never cheaper.

Differences from our own model (``Solver.placement``): every stage but the last pays for
recomputation, transfers overlap it, activations of all positions behind are in flight, only the
first stage's parameters are synchronised, with 4 (d-1)/d bytes per parameter byte, and the
iteration is (micro-batches + stages - 1) times the largest load.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_common.array_types import FloatArray, IntArray
from phaze_common.echo import as_given
from phaze_common.errors import InputError
from third_party.cases import integer, is_number

MOST_DEVICES, MOST_LAYERS = 2**24, 3000  # which bounds memory to some GiB
INFEASIBLE_S = 1e30  # the original's answer when nothing fits


@dataclass(frozen=True)
class PlacementInput:
    """What all widths share."""

    memory_bytes: float
    devices: int
    bandwidth_bytes_per_s: float
    micro_batches: int
    recompute: bool
    optimizer_copies: int  # of the parameters: 0 SGD, 1 Adam


@dataclass(frozen=True, eq=False)
class LayerChain:
    """Layers in topological order for one width; arrays of shape (layers,), edges as (source,
    destination, bytes) positions."""

    width: int
    ids: tuple[int, ...]
    forward_s: FloatArray
    backward_s: FloatArray
    parameter_bytes: FloatArray
    activation_bytes: FloatArray
    parallel: NDArray[np.bool_]
    edges: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, eq=False)
class StageTables:
    """Costs of the stage [i..j] at entry [i, j]; infinite and 0 below the diagonal."""

    last_load_s: FloatArray  # as the last stage
    load_s: FloatArray  # as any other
    farthest: IntArray  # position from the end up to which it fits in memory
    parameter_bytes: FloatArray
    parallel: NDArray[np.bool_]  # has a tensor-parallel layer


@dataclass(frozen=True)
class CasePlan:
    """An optimum: first and last layer of every stage, first stage first."""

    seconds: float
    width: int
    dp: int
    stages: tuple[tuple[int, int], ...]


def place_case(document: Mapping[str, Any]) -> dict[str, Any]:
    """Solve a device-placement input and return the original's output fields; infeasible is 1e30
    seconds without stages. Raises InputError: a field is missing or wrong, or the layers do not
    form a chain."""
    problem = read_problem(document)
    best, best_chain = None, None
    for chain in read_chains(document):
        plan = solve_width(problem, chain, best.seconds if best else math.inf)
        if plan is not None:
            best, best_chain = plan, chain
    stages = []
    if best is None or best_chain is None:
        best = CasePlan(INFEASIBLE_S, 0, 0, ())
    else:
        for first, last in best.stages:
            part = slice(first, last + 1)
            devices = best.width if best_chain.parallel[part].any() else 1
            stages.append({"nodes": list(best_chain.ids[part]), "devicesForStage": devices})
    return {
        "finalTimePerBatch": best.seconds,
        "tensorParallelDegree": best.width,
        "dataParallelDegree": best.dp,
        "stages": stages,
    }


def read_problem(document: Mapping[str, Any]) -> PlacementInput:
    """The fields that all widths share. Raises InputError: one is missing or has the wrong type or
    sign."""
    optimizer = document.get("optimizerAlgorithm", "SGD")
    if optimizer not in ("SGD", "Adam"):
        raise InputError(f"optimizerAlgorithm is {as_given(optimizer)}; it must be 'SGD' or 'Adam'")
    recompute = document.get("activationRecomputation", False)
    if not isinstance(recompute, bool):
        raise InputError(
            f"activationRecomputation is {as_given(recompute)}; it must be true or false"
        )
    bandwidth = _number(document, "bandwidth", "the input")
    if bandwidth <= 0:
        raise InputError(f"bandwidth is {bandwidth} bytes per second; it must be positive")
    return PlacementInput(
        memory_bytes=_number(document, "maxMemoryPerDevice", "the input"),
        devices=integer(
            math.floor(_number(document, "maxDevices", "the input")), "maxDevices", 0, MOST_DEVICES
        ),
        bandwidth_bytes_per_s=bandwidth,
        micro_batches=integer(
            math.floor(_number(document, "mbsInBatch", "the input")), "mbsInBatch", 0, 2**31
        ),  # truncated there
        recompute=recompute,
        optimizer_copies=1 if optimizer == "Adam" else 0,
    )


def read_chains(document: Mapping[str, Any]) -> list[LayerChain]:
    """The layers of every width, topologically sorted. Raises InputError: a field is missing or
    wrong, or a width's layers do not form a chain."""
    nodes, edges = document.get("nodes"), document.get("edges")
    if not isinstance(nodes, dict) or not isinstance(edges, dict) or not nodes:
        raise InputError(
            "the input needs objects 'nodes' and 'edges' with an entry for each tensor parallel "
            "width"
        )
    chains = []
    for width, layers in nodes.items():
        if not (width.isascii() and width.isdigit() and len(width) < 10) or int(width) < 1:
            raise InputError(
                f"nodes has a tensor parallel width {as_given(width)}; widths must be positive "
                "integers"
            )
        if not isinstance(layers, list) or not layers or not isinstance(edges.get(width), list):
            raise InputError(
                f"nodes and edges of width {width} must both be lists, with at least one node"
            )
        chains.append(_chain(int(width), layers, edges[width]))
    return chains


def _chain(width: int, layers: list[Any], connections: list[Any]) -> LayerChain:
    where = f"a node of width {width}"
    if len(layers) > MOST_LAYERS:
        raise InputError(
            f"width {width} has {len(layers):,} nodes, at most {MOST_LAYERS:,} are possible; give "
            "a smaller case"
        )
    by_id = {int(_number(layer, "id", where)): layer for layer in layers}
    if len(by_id) != len(layers):
        raise InputError(f"two nodes of width {width} have the same id; ids must be unique")
    edges = []
    for edge in connections:
        ends = [
            int(_number(edge, name, f"an edge of width {width}")) for name in ("sourceId", "destId")
        ]
        if not set(ends) <= by_id.keys():
            raise InputError(
                f"an edge of width {width} joins {ends[0]} and {ends[1]}, which are not both "
                "nodes; correct the edges"
            )
        edges.append(
            (ends[0], ends[1], _number(edge, "communicationCost", f"an edge of width {width}"))
        )
    ids = _chain_order(width, by_id.keys(), edges)
    position = {node: index for index, node in enumerate(ids)}

    def column(name: str) -> FloatArray:
        return np.array([_number(by_id[node], name, where) for node in ids])

    return LayerChain(
        width=width,
        ids=ids,
        forward_s=column("optimalLatencyFw"),
        backward_s=column("optimalLatencyBw"),
        parameter_bytes=column("parameterSize"),
        activation_bytes=column("activationSize"),
        parallel=np.array([bool(by_id[node].get("isTensorParallelized", False)) for node in ids]),
        edges=tuple(
            (position[source], position[destination], size) for source, destination, size in edges
        ),
    )


def _chain_order(width: int, nodes: Any, edges: list[tuple[int, int, float]]) -> tuple[int, ...]:
    """The only topological order of a chain with skip edges."""
    sorter = TopologicalSorter(dict.fromkeys(nodes, ()))
    for source, destination, _ in edges:
        sorter.add(destination, source)
    order: list[int] = []
    try:
        sorter.prepare()
    except CycleError as error:
        raise InputError(
            f"the edges of width {width} have a cycle; layers must form a chain"
        ) from error
    while sorter:
        node, *others = sorter.get_ready()
        if others:
            raise InputError(
                f"nodes {node} and {others[0]} of width {width} branch; the original places "
                "chains of layers only"
            )
        order.append(node)
        sorter.done(node)
    return tuple(order)


def _number(record: Any, key: str, where: str) -> float:
    value = record.get(key) if isinstance(record, dict) else None
    if not is_number(value) or not math.isfinite(value):
        raise InputError(f"{where} has {key} {as_given(value)}; a finite number is needed")
    if value < 0 and not key.lower().endswith("id"):
        raise InputError(f"{where} has {key} {as_given(value)}; it must not be negative")
    return float(value)


def stage_tables(problem: PlacementInput, chain: LayerChain) -> StageTables:
    """Loads, memory limits and parameters of every interval of layers."""
    layers = len(chain.ids)
    # Latest transfer for layer v of a stage.
    received, returned = np.zeros((layers, layers)), np.zeros((layers, layers))
    entering_bytes = np.zeros((layers, layers))  # [i, v]: into layer v of a stage that starts at i
    for source, destination, size in chain.edges:
        seconds = size / problem.bandwidth_bytes_per_s
        starts, ends = slice(source + 1, destination + 1), slice(source, destination)
        received[starts, destination] = np.maximum(received[starts, destination], seconds)
        entering_bytes[starts, destination] += size
        returned[source, ends] = np.maximum(returned[source, ends], seconds)
    forward, backward = np.full((layers, layers), np.inf), np.full((layers, layers), np.inf)
    finish = np.zeros(layers)
    for layer in range(layers):  # of stages starting at i <= layer
        finish[: layer + 1] = (
            np.maximum(finish[: layer + 1], received[: layer + 1, layer]) + chain.forward_s[layer]
        )
        forward[: layer + 1, layer] = finish[: layer + 1]
    finish = np.zeros(layers)
    for layer in reversed(range(layers)):  # of stages ending at j >= layer
        finish[layer:] = (
            np.maximum(finish[layer:], returned[layer, layer:]) + chain.backward_s[layer]
        )
        backward[layer, layer:] = finish[layer:]
    last_load_s = forward + backward
    load_s = last_load_s
    if problem.recompute:  # transfers of gradients overlap the second forward pass
        load_s = forward + np.maximum(
            _interval_sums(chain.forward_s) + _interval_sums(chain.backward_s), backward
        )
    parameters = _interval_sums(chain.parameter_bytes)
    activations = _interval_sums(chain.activation_bytes)
    stash = np.cumsum(entering_bytes, axis=1) if problem.recompute else activations
    farthest = _farthest(problem, (2 + problem.optimizer_copies) * parameters + activations, stash)
    inside = np.triu(np.ones((layers, layers), dtype=bool))
    parallel_layers = np.concatenate([[0], np.cumsum(chain.parallel)])
    parallel = (parallel_layers[None, 1:] - parallel_layers[:-1, None] > 0) & inside
    return StageTables(last_load_s, load_s, np.where(inside, farthest, 0), parameters, parallel)


def _interval_sums(values: FloatArray) -> FloatArray:
    """Sums over [i..j] at [i, j], added up from i on as the original does; 0 below the diagonal."""
    return np.cumsum(np.triu(np.broadcast_to(values, (len(values), len(values)))), axis=1)


def _farthest(problem: PlacementInput, fixed: FloatArray, stash: FloatArray) -> IntArray:
    """Largest position p with fixed + (p - 1)·stash within memory, at most one per layer; 0 where
    not even 1 fits."""
    most = len(fixed)
    with np.errstate(divide="ignore", invalid="ignore"):
        farthest = np.where(stash > 0, np.floor((problem.memory_bytes - fixed) / stash) + 1, most)
    farthest = np.clip(farthest, 1, most)
    # Rounding of the quotient.
    farthest = farthest + (fixed + farthest * stash <= problem.memory_bytes)
    farthest = farthest - (fixed + (farthest - 1) * stash > problem.memory_bytes)
    limits = np.where(fixed > problem.memory_bytes, 0, np.minimum(farthest, most))
    return limits.astype(np.int64)


def solve_width(problem: PlacementInput, chain: LayerChain, incumbent_s: float) -> CasePlan | None:
    """The fastest plan with this tensor parallel width if it beats ``incumbent_s``, else None."""
    tables = stage_tables(problem, chain)
    layers = len(chain.ids)
    wide_ones = bool(chain.parallel.any())
    narrow = int(np.count_nonzero(~chain.parallel)) if chain.width > 1 and wide_ones else 0
    width = chain.width if wide_ones else 1
    most_wide, most_narrow = min(layers, problem.devices // width), min(narrow, problem.devices)
    degrees = _degrees(problem)
    best: FloatArray = np.full((most_wide + 1, most_narrow + 1, layers + 1), np.inf)
    # Seconds, degree, wide, narrow, end of the first stage.
    found: tuple[float, int, int, int, int] | None = None
    busy = float((chain.forward_s + chain.backward_s).sum()) * (1.0 - 1e-12)
    longest = float((chain.forward_s + chain.backward_s).max()) * (1.0 - 1e-12)
    counts = np.arange(most_wide + 1)[:, None] + np.arange(most_narrow + 1)
    needed = np.arange(most_wide + 1)[:, None] * width + np.arange(most_narrow + 1)
    possible = (counts > 0) & (counts <= layers) & (needed <= problem.devices) & (len(degrees) > 0)
    most_degree = np.maximum(
        np.minimum(problem.devices // np.maximum(needed, 1), problem.micro_batches), 1
    )
    floor_s = (-(-problem.micro_batches // most_degree) + counts - 1) * np.maximum(
        longest, busy / np.maximum(counts, 1)
    )
    # No plan with at least so many wide stages is faster.
    later_s = np.minimum.accumulate(np.where(possible, floor_s, np.inf).min(axis=1)[::-1])[::-1]
    for wide in range(most_wide + 1):
        if later_s[wide] >= (found[0] if found else incumbent_s):
            break
        for thin in np.flatnonzero(possible[wide]).tolist():
            stages, devices = wide + thin, width * wide + thin
            loads = _first_stage_loads(tables, best, wide, thin)
            best[wide, thin, :layers] = loads.min(axis=1)
            if wide:
                best[wide, thin] = np.minimum(best[wide, thin], best[wide - 1, thin])
            if thin:
                best[wide, thin] = np.minimum(best[wide, thin], best[wide, thin - 1])
            allowed = degrees[degrees <= problem.devices // devices]
            rounds = -(-problem.micro_batches // allowed) + stages - 1
            limit = found[0] if found else incumbent_s
            least_load_s = max(longest, busy / stages, float(loads[0].min()))
            if not len(allowed) or rounds.min() * least_load_s >= limit:
                continue
            sync = 4.0 * (allowed - 1) / problem.bandwidth_bytes_per_s / allowed
            seconds = rounds[:, None] * loads[0] + sync[:, None] * tables.parameter_bytes[0]
            degree, end = divmod(int(seconds.argmin()), layers)
            if seconds[degree, end] < limit:
                found = (float(seconds[degree, end]), int(allowed[degree]), wide, thin, end)
    if found is None:
        return None
    return CasePlan(found[0], chain.width, found[1], _stages(tables, best, *found[2:]))


def _degrees(problem: PlacementInput) -> IntArray:
    """The smallest data-parallel degree for every number of micro-batches per pipeline; a larger
    one only synchronises more."""
    degrees = np.arange(1, min(problem.devices, problem.micro_batches) + 1)
    least: IntArray = degrees[np.diff(-(-problem.micro_batches // degrees), prepend=-1) != 0]
    return least


def _first_stage_loads(tables: StageTables, best: FloatArray, wide: int, narrow: int) -> FloatArray:
    """Largest load of layers i.. in ``wide`` and ``narrow`` stages if the first of them is [i..j],
    at [i, j]."""
    layers = len(tables.load_s)
    after = np.full((layers, layers), np.inf)
    if wide:
        after = np.minimum(after, best[wide - 1, narrow, 1:])
    if narrow:
        after = np.where(tables.parallel, after, np.minimum(after, best[wide, narrow - 1, 1:]))
    loads = np.where(tables.farthest >= wide + narrow, np.maximum(tables.load_s, after), np.inf)
    alone = (tables.farthest[:, -1] >= 1) & ((wide > 0) | ~tables.parallel[:, -1])
    loads[:, -1] = np.where(alone, tables.last_load_s[:, -1], np.inf)
    return loads


def _stages(
    tables: StageTables, best: FloatArray, wide: int, narrow: int, end: int
) -> tuple[tuple[int, int], ...]:
    """Follow the choices behind ``best`` from a first stage [0..end] in ``wide`` and ``narrow``
    stages."""
    layers = len(tables.load_s)
    stages = [(0, end)]
    while end < layers - 1:
        start, previous_end = stages[-1][0], end
        options = [(best[wide - 1, narrow, end + 1], wide - 1, narrow)] if wide else []
        if narrow and not tables.parallel[start, previous_end]:
            options.append((best[wide, narrow - 1, end + 1], wide, narrow - 1))
        load, wide, narrow = min(options)
        start = end + 1
        # At most so many stages: the state that brought this load may be one with fewer.
        while True:
            if wide and best[wide - 1, narrow, start] <= load:
                wide -= 1
            elif narrow and best[wide, narrow - 1, start] <= load:
                narrow -= 1
            else:
                break
        end = int(np.flatnonzero(_first_stage_loads(tables, best, wide, narrow)[start] <= load)[0])
        stages.append((start, end))
    return tuple(stages)
