"""What an operator's price depends on, and which cores it occupies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from Estimator.chips.tensor_core import TensorWork
from Estimator.chips.vector_core import ElementWork
from Estimator.network.collectives import wire_bytes
from Estimator.ring_attention import ring_merge, ring_piece
from GraphExtractor.graph import (
    DTYPE_BYTES,
    CollectiveKind,
    ModelGraph,
    Operator,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)
from GraphExtractor.score_mask import mask_of


@dataclass(frozen=True)
class Occupies:
    """Which kinds of cores an operator needs while it runs."""

    tensor_core: bool
    vector_core: bool


def occupies(operator: Operator) -> Occupies:
    """Products need a tensor core, their fused tails also a vector core; everything else,
    collectives included, a vector core."""
    tensor = bool(operator.gemms)
    return Occupies(tensor, bool(operator.vector) or not tensor)


def sent_bytes(operator: Operator) -> float:
    """Bytes that a device sends while the operator runs: of a collective, or of what runs beside a
    product piece by piece."""
    collectives = operator.streamed if operator.collective is None else (operator.collective,)
    sent = sum(wire_bytes(each.kind, each.payload_bytes, each.group_size) for each in collectives)
    if (
        operator.phase is Phase.BACKWARD
        and collectives
        and collectives[-1].kind is CollectiveKind.PASS
    ):
        # gradients have one more step home
        sent += collectives[-1].payload_bytes / collectives[-1].group_size
    return sent


@dataclass(frozen=True)
class OperatorSignature:
    """All that an operator's price depends on; the parts that do not apply are None, all of them of
    a collective.

    ``tensor`` and ``element`` are its products and its vector work. Of a product in panels whose
    tail follows the last of them, ``product`` is the product without the tail, ``tail`` the memory
    traffic that the tail adds to it; of attention around a ring, ``merges`` are what its pieces
    cost besides.
    """

    tensor: TensorWork | None
    element: ElementWork | None
    product: TensorWork | None = None
    tail: ElementWork | None = None
    merges: ElementWork | None = None

    @property
    def on_tensor_cores(self) -> tuple[TensorWork, ...]:
        """The parts that tensor cores are priced for."""
        return tuple(each for each in (self.tensor, self.product) if each is not None)

    @property
    def on_vector_cores(self) -> tuple[ElementWork, ...]:
        """The parts that vector cores are priced for."""
        return tuple(each for each in (self.element, self.tail, self.merges) if each is not None)


def operator_signature(operator: Operator) -> OperatorSignature:
    """What of ``operator`` matters for its price: operators with equal signatures cost the same.

    The products of a fused operator carry all its memory traffic; its tail only adds vector cycles.
    """
    if operator.collective is not None:
        return OperatorSignature(None, None)
    if operator.ring > 1:
        return _around_ring(operator)
    hbm_bytes = operator.bytes_read + operator.bytes_written
    uses = occupies(operator)
    if not uses.tensor_core:
        return OperatorSignature(None, ElementWork(operator.vector, hbm_bytes, starts=1))
    fused = operator.kind is OperatorKind.ATTENTION
    tensor = TensorWork(operator.gemms, hbm_bytes, fused, mask_of(operator))
    if not uses.vector_core:
        return OperatorSignature(tensor, None)
    element = ElementWork(operator.vector, 0, starts=0)
    # beside a gradient runs the sum of a bias', of what is there from the start
    follows = operator.yields is Yields.OUTPUT
    if not operator.streamed or not follows:
        return OperatorSignature(tensor, element)
    element_bytes = DTYPE_BYTES[operator.writes[0].dtype]
    operands = sum(
        gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
        for gemm in operator.gemms
    )
    alone = min(element_bytes * operands, hbm_bytes)
    tail = ElementWork((), hbm_bytes - alone, starts=0)
    return OperatorSignature(tensor, element, replace(tensor, hbm_bytes=alone), tail)


def _around_ring(operator: Operator) -> OperatorSignature:
    """Every piece of attention is started by itself, and so is every merging
    (``Estimator.ring_attention``)."""
    pieces, piece, merge = operator.ring, ring_piece(operator), ring_merge(operator)
    merged = pieces - 1
    return OperatorSignature(
        TensorWork(piece.gemms, piece.traffic_bytes, True, mask_of(operator), pieces),
        ElementWork(
            tuple(replace(work, steps=pieces * work.steps) for work in operator.vector),
            0,
            starts=pieces,
        ),
        merges=ElementWork(
            tuple(
                VectorWork(work.function, merged * work.elements, merged) for work in merge.vector
            ),
            merged * merge.traffic_bytes,
            starts=merged,
        ),
    )


@dataclass(frozen=True)
class DistinctWork:
    """The distinct parts of the signatures of some operators, in order of appearance."""

    tensor: tuple[TensorWork, ...]
    element: tuple[ElementWork, ...]


def distinct_work(graphs: Iterable[ModelGraph]) -> DistinctWork:
    """What has to be priced for ``graphs``."""
    signatures = list(
        dict.fromkeys(operator_signature(operator) for operator in _operators(graphs))
    )
    return DistinctWork(
        tuple(dict.fromkeys(work for each in signatures for work in each.on_tensor_cores)),
        tuple(dict.fromkeys(work for each in signatures for work in each.on_vector_cores)),
    )


def _operators(graphs: Iterable[ModelGraph]) -> Iterator[Operator]:
    for graph in graphs:
        for layer in graph.layers:
            for operators in (layer.forward, layer.backward, layer.backward_selective):
                yield from operators.operators
