"""Records of operators, the priced units of work, and graphs of them. No torch, no hardware."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx

DTYPE_BYTES = {
    name: size
    for size, names in {
        2: "bfloat16 float16 int16 uint16",
        4: "float32 complex32 int32 uint32",
        8: "float64 complex64 int64 uint64",
        16: "complex128",
        1: "int8 uint8 bool float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
        "float8_e8m0fnu",
    }.items()
    for name in names.split()
}


class OperatorKind(StrEnum):
    """What an operator does, which decides how it is priced."""

    GEMM = "gemm"
    CONV = "conv"  # as the GEMM of its im2col form
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"  # softmax, normalisation, sums, loss
    SCAN = "scan"  # a recurrence over the tokens: steps that each need the one before
    GATHER = "gather"  # embedding lookup, index, scatter-add
    MOVE = "move"  # a copy that really moves bytes (views are no operators)
    COLLECTIVE = "collective"


class Phase(StrEnum):
    """Forward or backward pass of the training step."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Yields(StrEnum):
    """What an operator's result is; ``OUTPUT`` in backward is a forward result made again."""

    OUTPUT = "output"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"


class CollectiveKind(StrEnum):
    """Collective communication within a parallel group."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"  # of its part by every member, one after another: panels of a product
    REDUCE = "reduce"  # of every member's part to it, one after another
    PASS = "pass"  # every member's part goes around a ring of them all


class CollectiveGroup(StrEnum):
    """Which devices take part in a collective.

    ``TENSOR2`` are those along the second axis of a 2D layout. They share the tokens of sequences,
    as do the devices of a context-parallel group: ``CONTEXT`` are both together, between which keys
    and values are exchanged.
    """

    TENSOR = "tensor"
    TENSOR2 = "tensor2"
    CONTEXT = "context"
    EXPERT = "expert"


# behind q_proj, q_a_proj and up_proj
_SIBLINGS = re.compile(r"\.(?:k_proj|v_proj|kv_a_proj\w*|gate_proj)\.")


class OperandRole(StrEnum):
    """What a tensor read or written by an operator is."""

    ACTIVATION = "activation"
    PARAMETER = "parameter"
    GRADIENT = "gradient"
    CONSTANT = "constant"  # a table every device keeps, such as the biases of ALiBi


@dataclass(frozen=True)
class Gemm:
    """``batch`` independent products of an (m, k) by a (k, n) matrix.

    Those of a recurrence are ``dependent``: each needs the result of the one before, and all
    multiply with one (k, n) matrix.
    """

    batch: int
    m: int
    k: int
    n: int
    dependent: bool = False

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.m * self.k * self.n


@dataclass(frozen=True)
class VectorWork:
    """``elements`` applications of a vector function, whose cycles are in ``Estimator/hardware``.

    In a recurrence they make ``steps`` of equal size, one behind the other. ``macs`` are
    multiply-accumulates among them that are a product of matrices, although no matrix unit runs it
    (a scan reads its state out).
    """

    function: str  # add, mul, gelu, softmax, layer_norm, dropout, ... and <name>_backward
    elements: int
    steps: int = 1
    macs: int = 0


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator reads or writes, views resolved to what is really touched."""

    shape: tuple[int, ...]
    dtype: str
    role: OperandRole

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Collective:
    """A collective over a parallel group.

    ``payload_bytes`` is the size of the full (unsharded) tensor: what all members together have
    given, received or contributed to when it is over. Of an all-to-all it is what one device holds,
    of which all but its own part leaves it.
    """

    kind: CollectiveKind
    payload_bytes: int
    group_size: int
    group: CollectiveGroup = CollectiveGroup.TENSOR

    @property
    def exchanges_tokens(self) -> bool:
        """Whether it takes tokens to the devices of their experts, or back."""
        return self.kind is CollectiveKind.ALL_TO_ALL and self.group is CollectiveGroup.EXPERT

    def messages(self, panels: int) -> int:
        """Broadcasts or reductions that ``panels`` panels need, each from or to one member.

        A panel that several members have parts of needs as many: where its columns lie one after
        another over the members, the ends of panels and of parts cut them into so many pieces.
        """
        return panels + self.group_size - math.gcd(panels, self.group_size)


# of ``GraphExtractor.experts``: tokens to rows by expert and back, and the same backward
PERMUTATIONS = frozenset({"gather_rows", "sum_rows", "sum_rows_backward"})


@dataclass(frozen=True)
class Operator:
    """One priced unit of work.

    ``gemms`` is non-empty for GEMM, CONV and ATTENTION (attention: QK^T and AV forward, five
    products backward), and for a SCAN whose steps multiply with a matrix. ``vector`` lists the
    element work, of the operator itself or fused into a GEMM as its tail: it always costs vector
    cycles, fusing only saves the memory round trip (fused intermediates are not in
    ``reads``/``writes``). ``forward_id`` is, for a backward operator, the id of the forward
    operator it differentiates. ``core_attention`` marks what selective recomputation runs again
    (Korthikanti et al. 2022, section 5). ``causal`` is attention, fused or a part of it, whose mask
    leaves a row the columns up to its own, ``window`` fused attention whose mask leaves it those at
    most so many before its own (and, where not causal, behind it): a fused kernel skips the others,
    but ``flops`` count them all. Where causal attention has fewer rows than columns, context
    parallelism gave it its part of both ends of the sequence. ``streamed`` are collectives that run
    beside a product, piece by piece, whose results no memory ever holds as a whole: broadcasts and
    reductions of the panels of a 2D product (how many panels is for whoever prices it to choose),
    keys and values that pass around a ring (as many pieces as devices). What a product so receives
    is among its ``reads``, as it reads it. ``model_share`` is the part of the FLOPs of a forward
    operator that is the model's where those of all devices are added up: the rest is padding, or
    what all devices of a tensor-parallel group compute alike.
    """

    id: int  # its number within the layer
    name: str
    kind: OperatorKind  # of operator
    phase: Phase  # forward or backward pass
    yields: Yields  # what a backward operator gives the gradient of
    gemms: tuple[Gemm, ...] = ()
    vector: tuple[VectorWork, ...] = ()
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    collective: Collective | None = None  # the exchange that it is, where it is one
    forward_id: int | None = None
    core_attention: bool = False
    causal: bool = False
    window: int | None = None
    streamed: tuple[Collective, ...] = ()
    model_share: float = 1.0

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products (2 per multiply-accumulate)."""
        return 2 * (sum(gemm.macs for gemm in self.gemms) + sum(work.macs for work in self.vector))

    @property
    def model_flops(self) -> float:
        """Those of them that are the model's."""
        return self.model_share * self.flops

    @property
    def permutes_rows(self) -> bool:
        """Whether it brings tokens into the order of their experts, or back."""
        return self.name.split("+")[0].rpartition(".")[2] in PERMUTATIONS

    @property
    def routes(self) -> bool:
        """Whether it is a product of a router of experts."""
        return ".router." in self.name

    @property
    def reads_with_sibling(self) -> bool:
        """Whether it is a product of the input that another one has read before it: keys and values
        behind queries, a gate behind what it lets through."""
        return self.phase is Phase.FORWARD and _SIBLINGS.search(self.name) is not None

    @property
    def grouped(self) -> bool:
        """Whether it is the products of several experts with weights of their own: other products
        of a batch, those of heads, read no parameters and make no gradients of them."""
        of_weights = self.parameter_bytes > 0 or self.yields is Yields.WEIGHT_GRADIENT
        return of_weights and any(each.batch > 1 for each in self.gemms)

    @property
    def ring(self) -> int:
        """Devices around which keys and values pass while it runs; 1 where nothing does."""
        passed = (each.group_size for each in self.streamed if each.kind is CollectiveKind.PASS)
        return next(passed, 1)

    def buffer_bytes(self, panels: int) -> int:
        """Bytes of the buffers of what is ``streamed`` in ``panels``: of each one in use, one next.

        Around a ring pass as many pieces as it has devices. Behind the only panel there is no next
        one.
        """
        total = 0
        for each in self.streamed:
            pieces = each.group_size if each.kind is CollectiveKind.PASS else panels
            total += -(-min(2, pieces) * each.payload_bytes // pieces)
        return total

    @property
    def bytes_read(self) -> int:
        """Bytes of all operands read."""
        return sum(operand.bytes for operand in self.reads)

    @property
    def bytes_written(self) -> int:
        """Bytes of all operands written."""
        return sum(operand.bytes for operand in self.writes)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters read."""
        return sum(operand.bytes for operand in self.reads if operand.role is OperandRole.PARAMETER)


@dataclass(frozen=True)
class OperatorGraph:
    """A DAG of operators: ``edges`` are (producer id, consumer id), views contracted."""

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def dag(self) -> nx.DiGraph[int]:
        """The graph as networkx, with the operator under the node attribute ``operator``."""
        import networkx as nx  # which most answers need not wait for

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((operator.id, {"operator": operator}) for operator in self.operators)
        graph.add_edges_from(self.edges)
        return graph

    @property
    def flops(self) -> int:
        """Matrix-product FLOPs of all operators."""
        return sum(operator.flops for operator in self.operators)
