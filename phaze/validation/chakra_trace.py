"""Chakra execution traces of a run that was measured: what ran on the device of a rank, and when.

Nodes of the host (``is_cpu_op``) only say what was launched by whom. mlcommons' converter of traces
of PyTorch names kernels as CUDA does, writes the shapes of what they read and, in many versions,
neither a version nor when they start: then they run as soon as what they depend on is finished, one
at a time on each stream.
"""

from __future__ import annotations

import ast
import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from phaze.exports.chakra import wire
from phaze.exports.chakra.trace import VERSION, NodeFields, NodeType, attribute
from phaze.validation.traced_kernels import (
    COMMUNICATION,
    MESSAGES,
    PRODUCTS,
    ProductShape,
    TracedKernel,
    part_of,
    product_of,
)
from phaze_common.errors import InputError

STEP = "ProfilerStep#"
DAMAGED = "it is no Chakra execution trace, or damaged"
MOST_NODES = 2_000_000  # of a trace: an iteration of a hundred thousand kernels has some 500,000
MOST_MICROS = 1 << 60
_TYPES = frozenset(NodeType)
_PART_OF: Mapping[int, str] = {
    NodeType.SEND: MESSAGES,
    NodeType.RECEIVE: MESSAGES,
    NodeType.COLLECTIVE: COMMUNICATION,
}  # of others by their names
# of which a converter writes some
_OF_METADATA = frozenset({"schema", "pid", "time", "start_ts", "finish_ts"})


@dataclass(frozen=True)
class MeasuredKernels:
    """What ran on a device, and how many iterations the trace marks (0: none)."""

    kernels: tuple[TracedKernel, ...]
    steps: int


def measured_kernels(content: bytes) -> MeasuredKernels:
    """The kernels of the device in a trace of one rank.

    Raises:
        InputError: it is damaged, of another version, or has nothing of a device that takes time.
    """
    nodes = _read(content)
    on_device = [node for node in nodes if node.type in _TYPES and not node.number("is_cpu_op")]
    if not on_device:
        raise InputError(
            "the trace has no node of a device (is_cpu_op false); give one of a run, linked with "
            "its device's trace"
        )
    if not any(node.duration_micros for node in on_device):
        raise InputError(
            "no node of the trace says how long it took (duration_micros): it is one for a "
            "simulator; give a trace of a run"
        )
    begins = _begins_us(nodes, on_device)
    by_id = {node.id: node for node in nodes}
    kernels = tuple(_kernel(node, begins[node.id], by_id) for node in on_device)
    steps = {node.name for node in nodes if node.name.startswith(STEP)}
    return MeasuredKernels(kernels, len(steps))


def _read(content: bytes) -> tuple[NodeFields, ...]:
    try:
        messages = wire.read_framed(content)
        _check_metadata(next(messages, b""))
        nodes = tuple(map(NodeFields.of, islice(messages, MOST_NODES + 1)))
        ids = {node.id for node in nodes}
        latest = max((node.start_micros + node.duration_micros for node in nodes), default=0)
    except InputError as error:
        raise InputError(f"{DAMAGED}: {error}") from error
    if len(nodes) > MOST_NODES:
        raise InputError(
            f"the trace has more than {MOST_NODES:,} nodes, which is too large; give one of fewer "
            "iterations"
        )
    if len(ids) < len(nodes):
        raise InputError(
            f"{DAMAGED}: {len(nodes) - len(ids)} of its nodes have the number of another one; "
            "export it again"
        )
    if latest > MOST_MICROS:
        raise InputError(
            f"{DAMAGED}: a node of it ends after {latest:.3g} microseconds; export it again"
        )
    return nodes


def _check_metadata(message: bytes) -> None:
    """Whether a trace begins so.

    Raises:
        InputError: it is of another version, or no trace.
    """
    version, known = "", False
    for field in wire.read_fields(message):
        if field.number == 1:
            version = field.content.decode(errors="replace")
        elif field.number == 2:
            known |= any(name in _OF_METADATA for name, _ in attribute(field.content))
    if version != VERSION and (version or not known):
        text = f"it says version {version!r:.40}" if version else "its first message is no metadata"
        raise InputError(f"{text}, and schema {VERSION} is read; export it with that one")


def _kernel(node: NodeFields, begin_us: float, by_id: Mapping[int, NodeFields]) -> TracedKernel:
    part = _PART_OF.get(node.type) or part_of(node.name)
    product = _product(node, by_id) if part == PRODUCTS else None
    return TracedKernel(node.name, part, begin_us, begin_us + node.duration_micros, product)


def _product(node: NodeFields, by_id: Mapping[int, NodeFields]) -> ProductShape | None:
    """The product of a kernel by what it reads and the operator that launched it, one of those that
    it depends on."""
    try:
        shapes = ast.literal_eval(node.input_shapes or "None")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    operators = (by_id[each].name for each in (*node.ctrl_deps, *node.data_deps) if each in by_id)
    products = (product_of(name, shapes) for name in operators)
    return next((found for found in products if found is not None), None)


def _begins_us(nodes: Sequence[NodeFields], on_device: Sequence[NodeFields]) -> dict[int, float]:
    """When every node starts: as it says, or where none of the device says so by what it depends
    on."""
    if any(node.start_micros for node in on_device) or len(on_device) == 1:
        return {node.id: float(node.start_micros) for node in nodes}
    return _by_dependencies(nodes)


def _by_dependencies(nodes: Sequence[NodeFields]) -> dict[int, float]:
    """Earliest starts: what a node needs is finished, and so is what came before it on its stream
    or thread.

    Raises:
        InputError: nodes depend on each other.
    """
    by_id = {node.id: node for node in nodes}
    needed = {
        node.id: {each for each in node.data_deps if each in by_id and each != node.id}
        for node in nodes
    }
    left = {number: len(each) for number, each in needed.items()}
    children = defaultdict[int, list[int]](list)
    for number, each in needed.items():
        for before in each:
            children[before].append(number)
    free, ends = defaultdict[tuple[bool, int], int](int), dict[int, int]()
    ready = [(0, number) for number, count in left.items() if not count]
    heapq.heapify(ready)
    while ready:
        at, number = heapq.heappop(ready)
        node = by_id[number]
        on_host = bool(node.number("is_cpu_op"))
        place = on_host, node.number("tid" if on_host else "stream") or 0
        free[place] = ends[number] = max(at, free[place]) + node.duration_micros
        for child in children[number]:
            left[child] -= 1
            if not left[child]:
                heapq.heappush(ready, (max(ends[each] for each in needed[child]), child))
    if len(ends) < len(nodes):
        raise InputError(
            f"{DAMAGED}: {len(nodes) - len(ends)} of its nodes depend on each other and none says "
            "when it starts; export it again"
        )
    return {number: float(end - by_id[number].duration_micros) for number, end in ends.items()}
