"""A placement problem of NEST, and how it is read.

One JSON object (further keys are ignored):

{"total_devices": 128, "memory_limit_bytes": 6.9e10,
 "devices_per_level": [8, 4, 4],  # devices under a switch, switches under the next, ...
 "bandwidth_per_level_bytes_s": [9.7e11, 1.1e11, 4.3e11],
 "latency_per_level_s": [1e-4, 2e-4, 3e-4],
 "microbatches_per_batch": 4096,  # already divided by the expert-parallel degree
 "activation_recomputation": true, "optimizer": "SGD",  # or "Adam"
 # By tensor parallel width; layers in topological order:
 "graphs": {"4": {"devices_per_stage": 4, "layer_ids": [...],
                  "parameter_bytes": [...], "activation_bytes": [...], "fw_s": [...], "bw_s": [...],
                  "edges": [[from id, to id, bytes], ...]}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError
from third_party.cases import is_number

MOST_LAYERS = 3000  # which bounds memory to some GiB
LARGEST = 1e30  # of any number; sums and products of numbers up to it stay finite
# Of 2 bytes a parameter: weights and gradients; with three fp32 states of Adam.
PARAMETER_COPIES = {"SGD": 2.0, "Adam": 8.0}


@dataclass(frozen=True, eq=False)
class TreeNetwork:
    """A tree of switches, innermost level first; arrays of shape (levels,)."""

    group_devices: tuple[int, ...]  # below one switch of each level
    bandwidth_bytes_per_s: FloatArray
    latency_s: FloatArray

    def level(self, first: int, second: int) -> int:
        """Innermost level with both devices under one switch; the outermost for devices beyond the
        tree."""
        apart = sum(first // group != second // group for group in self.group_devices)
        return min(apart, len(self.group_devices) - 1)


@dataclass(frozen=True, eq=False)
class WidthGraph:
    """The layers of one tensor parallel width; arrays of shape (layers,), edges as positions and
    bytes of shape (edges,)."""

    tp: int
    devices_per_stage: int
    layer_ids: tuple[int, ...]
    parameter_bytes: FloatArray
    activation_bytes: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    edge_bytes: FloatArray


@dataclass(frozen=True, eq=False)
class NestProblem:
    """What is asked."""

    network: TreeNetwork
    devices: int
    memory_bytes: float
    micro_batches: int
    recompute: bool
    parameter_copies: float  # kept in memory
    graphs: tuple[WidthGraph, ...]


def read_problem(document: Mapping[str, Any]) -> NestProblem:
    """The problem in ``document``, or in its field "problem". Raises InputError: a field is missing
    or wrong."""
    case = document.get("problem", document)
    if not isinstance(case, Mapping):
        raise InputError(f"problem is {_shown(case)}; it must be an object")
    devices = _integer(case.get("total_devices"), "total_devices")
    optimizer, recompute = case.get("optimizer"), case.get("activation_recomputation")
    if not isinstance(optimizer, str) or optimizer not in PARAMETER_COPIES:
        raise InputError(
            f"optimizer is {_shown(optimizer)}; it must be one of {', '.join(PARAMETER_COPIES)}"
        )
    if not isinstance(recompute, bool):
        raise InputError(
            f"activation_recomputation is {_shown(recompute)}; it must be true or false"
        )
    graphs = case.get("graphs")
    if not isinstance(graphs, Mapping) or not graphs:
        raise InputError(
            f"graphs is {_shown(graphs)}; it must be an object with an entry for each tensor "
            "parallel width"
        )
    name = "microbatches_per_batch"
    micro_batches = _number(case.get(name), name, least=1.0)
    return NestProblem(
        network=_network(case, devices),
        devices=devices,
        memory_bytes=_number(case.get("memory_limit_bytes"), "memory_limit_bytes"),
        micro_batches=int(micro_batches),  # truncated, as NEST does
        recompute=recompute,
        parameter_copies=PARAMETER_COPIES[optimizer],
        graphs=tuple(_graph(width, graph) for width, graph in graphs.items()),
    )


def _network(case: Mapping[str, Any], devices: int) -> TreeNetwork:
    sizes = _list(case, "devices_per_level", "the problem")
    counts = (_integer(size, f"devices_per_level[{level}]") for level, size in enumerate(sizes))
    groups = tuple(accumulate(counts, mul))
    if not groups or groups[-1] < devices:
        raise InputError(
            f"devices_per_level {_shown(sizes)} connects fewer than the {devices} total_devices; "
            "add a level or enlarge one"
        )
    name, levels = "bandwidth_per_level_bytes_s", len(groups)
    bandwidth = _numbers(case, name, "the problem", levels, least=1.0 / LARGEST)
    latency_s = _numbers(case, "latency_per_level_s", "the problem", levels)
    return TreeNetwork(groups, bandwidth, latency_s)


def _graph(width: str, graph: Any) -> WidthGraph:
    where = f"the graph of width {width[:20]!r}"
    if not (width.isascii() and width.isdigit() and 0 < len(width) < 10 and int(width) > 0):
        raise InputError(
            f"graphs has a tensor parallel width {width[:20]!r}; widths must be positive integers"
        )
    if not isinstance(graph, Mapping):
        raise InputError(f"{where} is {_shown(graph)}; it must be an object")
    ids = _list(graph, "layer_ids", where)
    if not ids or not all(map(_is_id, ids)):
        raise InputError(
            f"layer_ids of {where} is {_shown(ids)}; it must be a list of integers, with at least "
            "one"
        )
    if len(ids) > MOST_LAYERS:
        raise InputError(
            f"{where} has {len(ids):,} layers, at most {MOST_LAYERS:,} are possible; give a "
            "smaller case"
        )
    positions = {layer: position for position, layer in enumerate(ids)}
    if len(positions) < len(ids):
        raise InputError(f"two layers of {where} have the same id; ids must differ")
    edges = _list(graph, "edges", where)
    for edge in edges:
        if (
            not isinstance(edge, list)
            or len(edge) != 3
            or not all(_is_id(end) and end in positions for end in edge[:2])
        ):
            raise InputError(
                f"{where} has an edge {_shown(edge)}; edges are [from id, to id, bytes] between "
                "its layers"
            )
        if positions[edge[0]] >= positions[edge[1]]:
            raise InputError(
                f"{where} has an edge from {edge[0]} to {edge[1]}, against layer_ids; list the "
                "layers in topological order"
            )
    sizes = [_number(edge[2], f"the size of edge {_shown(edge)} of {where}") for edge in edges]
    return WidthGraph(
        tp=int(width),
        devices_per_stage=_integer(graph.get("devices_per_stage"), f"devices_per_stage of {where}"),
        layer_ids=tuple(ids),
        parameter_bytes=_numbers(graph, "parameter_bytes", where, len(ids)),
        activation_bytes=_numbers(graph, "activation_bytes", where, len(ids)),
        forward_s=_numbers(graph, "fw_s", where, len(ids)),
        backward_s=_numbers(graph, "bw_s", where, len(ids)),
        sources=tuple(positions[edge[0]] for edge in edges),
        targets=tuple(positions[edge[1]] for edge in edges),
        edge_bytes=np.array(sizes, dtype=np.float64),
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(record: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise InputError(f"{key} of {where} is {_shown(value)}; it must be a list")
    return value


def _numbers(
    record: Mapping[str, Any], key: str, where: str, count: int, least: float = 0.0
) -> FloatArray:
    values = _list(record, key, where)
    if len(values) != count:
        raise InputError(
            f"{key} of {where} has {len(values)} entries; it needs {count}, one for each level or "
            "layer"
        )
    return np.array(
        [_number(value, f"{key}[{index}] of {where}", least) for index, value in enumerate(values)]
    )


def _number(value: Any, name: str, least: float = 0.0) -> float:
    if not is_number(value) or not least <= value <= LARGEST:
        raise InputError(
            f"{name} is {_shown(value)}; it must be a number from {least:g} to {LARGEST:g}"
        )
    return float(value)


def _integer(value: Any, name: str) -> int:
    number = _number(value, name, least=1.0)
    if not number.is_integer() or number > 2**31:
        raise InputError(f"{name} is {_shown(value)}; it must be an integer from 1 to {2**31}")
    return int(number)


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
