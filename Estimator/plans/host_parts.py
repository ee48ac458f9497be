"""Parts of a layer whose kernels the host issues, or CUDA graphs replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType

from Estimator.devices.functions import SCAN_OPERATIONS
from GraphExtractor.graph import LayerGraph, Operator, OperatorKind, Phase
from phaze_common.choices import CudaGraphs


class HostPart(IntEnum):
    """A part of a layer: attention, or a scan over the tokens, with the norm before it, the experts
    from the permutation of their tokens to their sum, what of a layer with experts is between these
    (router and shared experts), what of another layer is behind attention, and embedding and
    head."""

    ATTENTION = 0
    ROUTER = 1
    EXPERTS = 2
    REST = 3
    ENDS = 4


_SCANS = frozenset({*SCAN_OPERATIONS, "chunk_scan"})

# Megatron-LM, --cuda-graph-modules: attn with mamba; moe_router with moe_preprocess goes up to the
# permutation, and has shared experts with it
REPLAYED: Mapping[CudaGraphs, tuple[HostPart, ...]] = MappingProxyType(
    {
        CudaGraphs.NONE: (),
        CudaGraphs.ATTENTION: (HostPart.ATTENTION,),
        CudaGraphs.ROUTER: (HostPart.ROUTER,),
        CudaGraphs.ATTENTION_ROUTER: (HostPart.ATTENTION, HostPart.ROUTER),
        CudaGraphs.LAYER: tuple(part for part in HostPart if part is not HostPart.ENDS),
        CudaGraphs.ITERATION: tuple(HostPart),
    }
)


def host_parts(layer: LayerGraph) -> Mapping[int, HostPart]:
    """The part that each forward operator belongs to, by its id."""
    operators = layer.forward.operators
    routed = [place for place, each in enumerate(operators) if each.permutes_rows]
    cores = [place for place, each in enumerate(operators) if _is_core(each)]
    rest = HostPart.ROUTER if routed else HostPart.REST
    attention = -1
    if cores:  # up to the projection behind attention
        behind = (
            place
            for place, each in enumerate(operators[cores[-1] + 1 :], cores[-1] + 1)
            if each.kind is OperatorKind.GEMM
        )
        attention = next(behind, cores[-1])
    found = {}
    for place, each in enumerate(operators):
        if routed and routed[0] <= place <= routed[-1]:
            found[each.id] = HostPart.EXPERTS
        else:
            found[each.id] = HostPart.ATTENTION if place <= attention else rest
    return found


def parts_of(operators: Iterable[Operator], layer: LayerGraph) -> tuple[HostPart, ...]:
    """The part of each of a pass's ``operators``: a backward one is with that whose gradient it
    is."""
    parts = host_parts(layer)
    numbers = (
        each.id if each.phase is Phase.FORWARD or each.forward_id is None else each.forward_id
        for each in operators
    )
    return tuple(parts.get(number, HostPart.REST) for number in numbers)


def _is_core(operator: Operator) -> bool:
    if operator.kind is OperatorKind.ATTENTION or operator.core_attention:
        return True
    return any(each.function in _SCANS for each in operator.vector)
