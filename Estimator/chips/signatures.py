"""What an operator's price depends on, and which cores it occupies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from Estimator.chips.tensor_core import TensorWork
from Estimator.chips.vector_core import ElementWork
from Estimator.network.collectives import wire_bytes
from GraphExtractor.graph import CollectiveKind, ModelGraph, Operator, OperatorKind, Phase
from GraphExtractor.score_mask import mask_of


@dataclass(frozen=True)
class Occupies:
    """Which kinds of cores an operator needs while it runs."""

    tensor_core: bool
    vector_core: bool


def occupies(operator: Operator) -> Occupies:
    """Products need a tensor core, their fused tails also a vector core; everything else, collectives included, a vector core."""
    tensor = bool(operator.gemms)
    return Occupies(tensor, bool(operator.vector) or not tensor)


def sent_bytes(operator: Operator) -> float:
    """Bytes that a device sends while the operator runs: of a collective, or of what runs beside a product piece by piece."""
    collectives = operator.streamed if operator.collective is None else (operator.collective,)
    sent = sum(wire_bytes(each.kind, each.payload_bytes, each.group_size) for each in collectives)
    if operator.phase is Phase.BACKWARD and collectives and collectives[-1].kind is CollectiveKind.PASS:
        sent += collectives[-1].payload_bytes / collectives[-1].group_size  # gradients have one more step home
    return sent


@dataclass(frozen=True)
class OperatorSignature:
    """All that an operator's price depends on; the parts that do not apply are None, all of them of a collective."""

    tensor: TensorWork | None
    element: ElementWork | None


def operator_signature(operator: Operator) -> OperatorSignature:
    """What of ``operator`` matters for its price: operators with equal signatures cost the same.

    The products of a fused operator carry all its memory traffic; its tail only adds vector cycles.
    """
    if operator.collective is not None:
        return OperatorSignature(None, None)
    hbm_bytes = operator.bytes_read + operator.bytes_written
    uses = occupies(operator)
    fused = operator.kind is OperatorKind.ATTENTION
    tensor = TensorWork(operator.gemms, hbm_bytes, fused, mask_of(operator)) if uses.tensor_core else None
    element = None
    if uses.vector_core:
        element = ElementWork(operator.vector, 0 if tensor else hbm_bytes, starts=tensor is None)
    return OperatorSignature(tensor, element)


@dataclass(frozen=True)
class DistinctWork:
    """The distinct parts of the signatures of some operators, in order of appearance."""

    tensor: tuple[TensorWork, ...]
    element: tuple[ElementWork, ...]


def distinct_work(graphs: Iterable[ModelGraph]) -> DistinctWork:
    """What has to be priced for ``graphs``."""
    signatures = list(dict.fromkeys(operator_signature(operator) for operator in _operators(graphs)))
    return DistinctWork(
        tuple(dict.fromkeys(each.tensor for each in signatures if each.tensor is not None)),
        tuple(dict.fromkeys(each.element for each in signatures if each.element is not None)),
    )


def _operators(graphs: Iterable[ModelGraph]) -> Iterator[Operator]:
    for graph in graphs:
        for layer in graph.layers:
            for operators in (layer.forward, layer.backward, layer.backward_selective):
                yield from operators.operators
