"""Records of a training graph: operators, layers, model. Plain data, no torch, no hardware.

Vocabulary: an *operator* is one priced unit of work; a *layer* is a repeated block (or the embedding, the head); the *model
graph* is the layers in execution order with the tensors between them, for one (micro-batch size, sequence length, tp).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import networkx as nx

from Common.choices import Attention as Attention
from Common.choices import KeyExchange as KeyExchange
from Common.choices import Recompute as Recompute
from Common.choices import TensorLayout as TensorLayout
from GraphExtractor.names import label

SCHEMA_VERSION = 6

DTYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
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
    """What an operator's result is; ``OUTPUT`` in the backward pass is a forward result made again."""

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

    ``TENSOR2`` are those along the second axis of a 2D layout. They share the tokens of sequences, as do the devices of a
    context-parallel group: ``CONTEXT`` are both together, between which keys and values are exchanged.
    """

    TENSOR = "tensor"
    TENSOR2 = "tensor2"
    CONTEXT = "context"
    EXPERT = "expert"


class OperandRole(StrEnum):
    """What a tensor read or written by an operator is."""

    ACTIVATION = "activation"
    PARAMETER = "parameter"
    GRADIENT = "gradient"
    CONSTANT = "constant"  # a table every device keeps, such as the biases of ALiBi


@dataclass(frozen=True)
class Gemm:
    """``batch`` independent products of an (m, k) by a (k, n) matrix.

    Those of a recurrence are ``dependent``: each needs the result of the one before, and all multiply with one (k, n) matrix.
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
    """``elements`` applications of a vector function; its cycles per element are in ``Estimator/hardware`` YAML.

    In a recurrence they make ``steps`` of equal size, one behind the other. ``macs`` are multiply-accumulates among them that are
    a product of matrices, although no matrix unit runs it (a scan reads its state out).
    """

    function: str  # add, mul, gelu, softmax, layer_norm, dropout, ... and <name>_backward
    elements: int
    steps: int = 1
    macs: int = 0


@dataclass(frozen=True)
class Operand:
    """A tensor read from or written to memory by an operator (views resolved to what is really touched)."""

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

    ``payload_bytes`` is the size of the full (unsharded) tensor: what all members together have given, received or contributed to
    when it is over. Of an all-to-all it is what one device holds, of which all but its own part leaves it.
    """

    kind: CollectiveKind
    payload_bytes: int
    group_size: int
    group: CollectiveGroup = CollectiveGroup.TENSOR


@dataclass(frozen=True)
class Operator:
    """One priced unit of work.

    ``gemms`` is non-empty for GEMM, CONV and ATTENTION (attention: QK^T and AV forward, five products backward), and for a SCAN
    whose steps multiply with a matrix.
    ``vector`` lists the element work, of the operator itself or fused into a GEMM as its tail: it always costs vector
    cycles, fusing only saves the memory round trip (fused intermediates are not in ``reads``/``writes``).
    ``forward_id`` is, for a backward operator, the id of the forward operator it differentiates.
    ``core_attention`` marks what selective recomputation runs again (Korthikanti et al. 2022, section 5).
    ``causal`` is attention, fused or a part of it, whose mask leaves a row the columns up to its own, ``window`` fused attention
    whose mask leaves it those at most so many before its own (and, where not causal, behind it): a fused kernel skips the others,
    but ``flops`` count them all. Where causal attention has fewer rows than columns, context parallelism gave it its part of both
    ends of the sequence.
    ``streamed`` are collectives that run beside a product, piece by piece, whose results no memory ever holds as a whole:
    broadcasts and reductions of the panels of a 2D product (how many panels is for whoever prices it to choose), keys and values
    that pass around a ring (as many pieces as devices). What a product so receives is among its ``reads``, as it reads it.
    """

    id: int
    name: str
    kind: OperatorKind
    phase: Phase
    yields: Yields
    gemms: tuple[Gemm, ...] = ()
    vector: tuple[VectorWork, ...] = ()
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    collective: Collective | None = None
    forward_id: int | None = None
    core_attention: bool = False
    causal: bool = False
    window: int | None = None
    streamed: tuple[Collective, ...] = ()

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products (2 per multiply-accumulate)."""
        return 2 * (sum(gemm.macs for gemm in self.gemms) + sum(work.macs for work in self.vector))

    def buffer_bytes(self, panels: int) -> int:
        """Bytes of the buffers that what is ``streamed`` needs in ``panels`` pieces: of each the one in use and the next one.

        Around a ring pass as many pieces as it has devices.
        """
        pieces = (each.group_size if each.kind is CollectiveKind.PASS else panels for each in self.streamed)
        return sum(-(-2 * each.payload_bytes // count) for each, count in zip(self.streamed, pieces, strict=True))

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
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((operator.id, {"operator": operator}) for operator in self.operators)
        graph.add_edges_from(self.edges)
        return graph

    @property
    def flops(self) -> int:
        """Matrix-product FLOPs of all operators."""
        return sum(operator.flops for operator in self.operators)


@dataclass(frozen=True)
class SavedBytes:
    """Bytes one micro-batch leaves behind for the backward pass of one layer by itself, per recomputation mode.

    Whatever the layer keeps counts, whoever made it and whoever else keeps it (``SharedTensor``). ``full`` is the bytes of the
    tensors entering the layer, which is all that full recomputation keeps. ``restored_selective`` and ``restored_full`` are the
    bytes of what ``none`` keeps and these modes make again before they need it; they may keep what ``none`` does not.
    """

    none: int
    selective: int
    full: int
    restored_selective: int = 0
    restored_full: int = 0

    def restored(self, recompute: Recompute) -> int:
        """Bytes that ``recompute`` makes again for the layer's backward pass."""
        return {Recompute.NONE: 0, Recompute.SELECTIVE: self.restored_selective, Recompute.FULL: self.restored_full}[recompute]

    def under(self, recompute: Recompute) -> int:
        """Bytes kept under ``recompute``."""
        return {Recompute.NONE: self.none, Recompute.SELECTIVE: self.selective, Recompute.FULL: self.full}[recompute]


@dataclass(frozen=True)
class SparseTable:
    """An embedding table whose gradient is that of the rows that were read: ``rows_read`` by a micro-batch at most."""

    rows: int
    width: int
    rows_read: int

    @property
    def parameter_count(self) -> int:
        """All its parameters."""
        return self.rows * self.width


@dataclass(frozen=True)
class LayerGraph:
    """One distinct layer (per device, i.e. already divided by tp, and its experts by ep).

    ``name`` says what it is: embedding, block, head, or the module it was made from. ``backward_selective`` is the backward DAG
    with the core-attention operators run again in it (equal to ``backward`` where the layer has none). ``parameter_count``
    counts every parameter the layer reads as its own, ``tied_count`` the part of it that an earlier layer owns too (a tied
    head): counted once where both layers share a device. ``expert_parameter_count`` is the part of it in experts, which meet
    some of the tokens only and which the devices of an expert-parallel group divide among them. ``twice_divided_count`` is the
    part that a 2D layout divides along both axes (0 in any other): its gradients are complete but for context-parallel devices
    and replicas, those of the others (norms, biases, positions) are sums over the devices of the second axis besides.
    ``sparse_tables`` are those among them whose gradient is that of the rows that were read.
    ``workspace_bytes`` is the largest sum of temporaries live at once beyond what is saved, ``buffer_bytes`` of what is streamed
    left out.
    """

    name: str
    forward: OperatorGraph
    backward: OperatorGraph
    backward_selective: OperatorGraph
    parameter_count: int
    matmul_parameter_count: int  # those that enter matrix products with every token (N of 2·N·tokens)
    expert_parameter_count: int
    tied_count: int
    saved: SavedBytes
    workspace_bytes: int
    structural_hash: str
    sparse_tables: tuple[SparseTable, ...] = ()
    twice_divided_count: int = 0

    @property
    def sparse_parameter_count(self) -> int:
        """Parameters of ``sparse_tables``."""
        return sum(table.parameter_count for table in self.sparse_tables)

    def buffer_bytes(self, panels: int) -> int:
        """Bytes of the buffers for what its operators stream in ``panels`` pieces, which they have one after another."""
        return max((each.buffer_bytes(panels) for each in (*self.forward.operators, *self.backward.operators)), default=0)

    def backward_graph(self, recompute: Recompute) -> OperatorGraph:
        """Operators of the backward pass; FULL runs ``forward`` again before it, which the solver adds."""
        return self.backward_selective if recompute is Recompute.SELECTIVE else self.backward


@dataclass(frozen=True)
class LayerTensor:
    """A tensor crossing layer boundaries: made by layer ``source``, used by every layer in ``destinations``.

    Layers are positions in ``ModelGraph.sequence``. ``gradient_bytes`` flows back (0 for tensors without gradient).
    """

    source: int
    destinations: tuple[int, ...]
    bytes: int
    gradient_bytes: int


@dataclass(frozen=True)
class SharedTensor:
    """Tensors of a micro-batch that the same layers keep for their backward passes: a device with several of them keeps one copy.

    ``none``, ``selective`` and ``full`` are these layers under each recomputation mode, ascending positions in
    ``ModelGraph.sequence``; layer ``source`` makes them (None: inputs). An activation between two layers may be one (a ReLU keeps
    what it makes, the convolution behind it what it reads), and so may a table or mask that many layers read.
    """

    source: int | None
    bytes: int
    none: tuple[int, ...]
    selective: tuple[int, ...]
    full: tuple[int, ...]

    def kept_by(self, recompute: Recompute) -> tuple[int, ...]:
        """The layers that keep it under ``recompute``."""
        return {Recompute.NONE: self.none, Recompute.SELECTIVE: self.selective, Recompute.FULL: self.full}[recompute]

    @property
    def layers(self) -> tuple[int, ...]:
        """All layers that keep it under some mode."""
        return tuple(sorted({*self.none, *self.selective, *self.full}))


@dataclass(frozen=True)
class GraphKey:
    """What a model graph was made for.

    ``cp`` devices share the ``sequence_length`` tokens of a sequence, ``ep`` devices with samples of their own share the experts.
    A ``layout`` of two axes divides products over ``tp`` x ``tp2`` devices, columns by rows, whose rows share tokens too.
    ``exchange`` is how the devices that share tokens attend to all of them.
    """

    model: str
    micro_batch_size: int
    sequence_length: int
    tp: int
    attention: Attention = Attention.FLASH
    sequence_parallel: bool = False
    dtype: str = "bfloat16"
    cp: int = 1
    ep: int = 1
    layout: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    exchange: KeyExchange = KeyExchange.GATHER

    @property
    def sequence_devices(self) -> int:
        """Devices among which the tokens of a sequence are divided; sequence parallelism, which gathers them again, aside."""
        return self.cp * self.tp2

    @property
    def label(self) -> str:
        """The model's name as it is safe in file names."""
        return label(self.model)


@dataclass(frozen=True)
class ModelGraph:
    """A training step of a model, per device of its tensor-, context- and expert-parallel groups.

    ``layers`` are the distinct layers; ``sequence[i]`` is the index into ``layers`` of the i-th layer executed. Layers depend
    on each other through ``tensors`` alone, which need not make a chain of them. ``shared`` are the tensors that several layers
    keep: what layers on one device save is the sum of ``LayerGraph.saved`` with each of these counted once.
    ``block_parameter_count`` is the part of ``total_parameter_count`` that one repeated block adds; 0 where blocks differ.
    """

    key: GraphKey
    layers: tuple[LayerGraph, ...]
    sequence: tuple[int, ...]
    tensors: tuple[LayerTensor, ...]
    total_parameter_count: int  # of the whole model, unsharded, unpadded, tied parameters once
    block_parameter_count: int = 0
    shared: tuple[SharedTensor, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)
