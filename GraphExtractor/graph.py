"""Records of a training graph: layers, model, and the operators of ``operator_records``.

Plain data, no torch, no hardware.

Vocabulary: an *operator* is one priced unit of work; a *layer* is a repeated block (or the
embedding, the head); the *model graph* is the layers in execution order with the tensors between
them, for one (micro-batch size, sequence length, tp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from GraphExtractor.graph_key import GraphKey as GraphKey
from GraphExtractor.operator_records import DTYPE_BYTES as DTYPE_BYTES
from GraphExtractor.operator_records import Collective as Collective
from GraphExtractor.operator_records import CollectiveGroup as CollectiveGroup
from GraphExtractor.operator_records import CollectiveKind as CollectiveKind
from GraphExtractor.operator_records import Gemm as Gemm
from GraphExtractor.operator_records import Operand as Operand
from GraphExtractor.operator_records import OperandRole as OperandRole
from GraphExtractor.operator_records import Operator as Operator
from GraphExtractor.operator_records import OperatorGraph as OperatorGraph
from GraphExtractor.operator_records import OperatorKind as OperatorKind
from GraphExtractor.operator_records import Phase as Phase
from GraphExtractor.operator_records import VectorWork as VectorWork
from GraphExtractor.operator_records import Yields as Yields
from phaze_common.choices import Attention as Attention
from phaze_common.choices import KeyExchange as KeyExchange
from phaze_common.choices import Recompute as Recompute
from phaze_common.choices import StageCuts as StageCuts
from phaze_common.choices import TensorLayout as TensorLayout
from phaze_common.file_formats import GRAPH
from phaze_common.recompute_modules import Recomputation as Recomputation
from phaze_common.recompute_modules import RecomputedModules, RecomputeModule

SCHEMA_VERSION = GRAPH.version


@dataclass(frozen=True)
class LessBytes:
    """Bytes that a layer saves less under the modes that save more than what enters it."""

    none: int = 0
    selective: int = 0

    def under(self, recompute: Recompute) -> int:
        """Under ``recompute``."""
        return 0 if recompute is Recompute.FULL else int(getattr(self, recompute))


@dataclass(frozen=True)
class Keeping:
    """How a framework saves what the traced step does, as torch runs it operator by operator.

    ``in_fp8``: inputs of products as one byte, and the original too where anything else needs it.
    ``joined``: element-wise operators behind one another are one kernel, which makes again what
    lies between them. ``one_by_one``: every operator writes what it makes, so that more temporaries
    are live at once. ``loss_in_place``: the gradient of the loss takes the place of its softmax, so
    that there is none in fp32 besides. ``fused_gradients``: products that add to sums of gradients
    hand autograd tensors with nothing in them, one of each shape among the weights of a block for
    good, and one of the head while it works. The allocator takes ``spare`` of activations and
    temporaries more. ``by_weight``: what is gathered and reduced whole is a weight at a time, not a
    layer. A loss whose logits tensor-parallel devices divide holds ``parallel_loss`` bytes of each
    at once, beyond what it keeps.
    """

    in_fp8: bool = False
    joined: bool = False
    one_by_one: bool = False
    loss_in_place: bool = False
    fused_gradients: bool = False
    spare: float = 0.0
    by_weight: bool = False
    parallel_loss: float = 0.0


AS_TRACED = Keeping()


@dataclass(frozen=True)
class SavedBytes:
    """Bytes one micro-batch leaves behind for the backward pass of one layer by itself, per
    recomputation mode.

    Whatever the layer keeps counts, whoever made it and whoever else keeps it (``SharedTensor``).
    ``full`` is the bytes of the tensors entering the layer, which is all that full recomputation
    keeps. ``restored_selective`` and ``restored_full`` are the bytes of what ``none`` keeps and
    these modes make again before they need it; they may keep what ``none`` does not.
    ``less_in_fp8`` and ``less_joined`` are saved less by frameworks that do so (``Keeping``).
    """

    none: int
    selective: int
    full: int
    restored_selective: int = 0
    restored_full: int = 0
    less_in_fp8: LessBytes = LessBytes()
    less_joined: LessBytes = LessBytes()

    def restored(self, recompute: Recompute, keeping: Keeping = AS_TRACED) -> int:
        """Bytes that ``recompute`` makes again for the layer's backward pass."""
        less = self._less(Recompute.NONE, keeping) - self._less(recompute, keeping)
        made = 0 if recompute is Recompute.NONE else int(getattr(self, f"restored_{recompute}"))
        return made - less

    def under(self, recompute: Recompute, keeping: Keeping = AS_TRACED) -> int:
        """Bytes saved under ``recompute``."""
        return int(getattr(self, recompute)) - self._less(recompute, keeping)

    def _less(self, recompute: Recompute, keeping: Keeping) -> int:
        in_fp8 = self.less_in_fp8.under(recompute) if keeping.in_fp8 else 0
        return in_fp8 + (self.less_joined.under(recompute) if keeping.joined else 0)


@dataclass(frozen=True)
class SparseTable:
    """An embedding table whose gradient is that of the ``rows_read`` by a micro-batch at most."""

    rows: int
    width: int
    rows_read: int

    @property
    def parameter_count(self) -> int:
        """All its parameters."""
        return self.rows * self.width


@dataclass(frozen=True)
class ModuleAgain:
    """A module of a layer that may be recomputed by itself: the ``operators`` that then run again.

    The layer saves ``less`` bytes less, and of the rest ``less_in_fp8`` and ``less_joined`` less
    than frameworks that do so save less without it (``Keeping``); ``restored`` are made again.
    """

    name: RecomputeModule
    operators: tuple[Operator, ...]
    less: int
    less_in_fp8: int
    less_joined: int
    restored: int


@dataclass(frozen=True)
class LayerGraph:
    """One distinct layer (per device, i.e. already divided by tp, and its experts by ep).

    ``name`` says what it is: embedding, block, head, or the module it was made from.
    ``backward_selective`` is the backward DAG with the core-attention operators run again in it
    (equal to ``backward`` where the layer has none). ``parameter_count`` counts every parameter the
    layer reads as its own, ``tied_count`` the part of it that an earlier layer owns too (a tied
    head): counted once where both layers share a device. ``expert_parameter_count`` is the part of
    it in experts, which meet some of the tokens only and which the devices of an expert-parallel
    group divide among them. ``twice_divided_count`` is the part that a 2D layout divides along both
    axes (0 in any other): its gradients are complete but for context-parallel devices and replicas,
    those of the others (norms, biases, positions) are sums over the devices of the second axis
    besides. ``sparse_tables`` are those among them whose gradient is that of the rows that were
    read. ``live_bytes`` are temporaries live at once beyond what is saved, ``buffer_bytes`` of what
    is streamed left out, operator by operator of both passes; ``single_live_bytes`` the same where
    no operator is joined to another.
    """

    name: str
    forward: OperatorGraph  # operators of the forward pass, and which needs which
    backward: OperatorGraph
    backward_selective: OperatorGraph
    parameter_count: int
    # those that enter matrix products with every token (N of 2·N·tokens)
    matmul_parameter_count: int
    expert_parameter_count: int
    tied_count: int
    saved: SavedBytes  # bytes kept for the backward pass
    live_bytes: tuple[int, ...]
    sparse_tables: tuple[SparseTable, ...] = ()
    twice_divided_count: int = 0
    single_live_bytes: tuple[int, ...] = ()
    modules: tuple[ModuleAgain, ...] = ()  # that it has, of those that are recomputed by name

    def again(self, recompute: RecomputedModules) -> tuple[ModuleAgain, ...]:
        """Those of its modules that ``recompute`` names."""
        return tuple(each for each in self.modules if each.name in recompute.names)

    def saved_under(self, recompute: Recomputation, keeping: Keeping = AS_TRACED) -> int:
        """Bytes that one micro-batch leaves for the backward pass under ``recompute``."""
        if not isinstance(recompute, RecomputedModules):
            return self.saved.under(recompute, keeping)
        less = sum(
            each.less
            + (each.less_in_fp8 if keeping.in_fp8 else 0)
            + (each.less_joined if keeping.joined else 0)
            for each in self.again(recompute)
        )
        return self.saved.under(Recompute.NONE, keeping) - less

    def restored_by(self, recompute: Recomputation, keeping: Keeping = AS_TRACED) -> int:
        """Bytes that ``recompute`` makes again for the backward pass, of one module at a time."""
        if not isinstance(recompute, RecomputedModules):
            return self.saved.restored(recompute, keeping)
        return max((each.restored for each in self.again(recompute)), default=0)

    @property
    def workspace_bytes(self) -> int:
        """The most temporaries that are live at once."""
        return max(self.live_bytes, default=0)

    @property
    def single_workspace_bytes(self) -> int:
        """The same where no operator is joined to another."""
        return max(self.single_live_bytes, default=0)

    @property
    def sparse_parameter_count(self) -> int:
        """Parameters of ``sparse_tables``."""
        return sum(table.parameter_count for table in self.sparse_tables)

    def buffer_bytes(self, panels: int) -> int:
        """Bytes of the buffers for what its operators, one by one, stream in ``panels`` pieces."""
        operators = (*self.forward.operators, *self.backward.operators)
        return max((each.buffer_bytes(panels) for each in operators), default=0)

    def backward_graph(self, recompute: Recomputation) -> OperatorGraph:
        """Operators of the backward pass; ``forward``, which FULL runs again, is the solver's."""
        return self.backward_selective if recompute is Recompute.SELECTIVE else self.backward


@dataclass(frozen=True)
class LayerTensor:
    """A tensor from layer ``source`` to every layer in ``destinations``.

    Layers are positions in ``ModelGraph.sequence``. ``gradient_bytes`` flows back (0: none).
    """

    source: int
    destinations: tuple[int, ...]
    bytes: int
    gradient_bytes: int


@dataclass(frozen=True)
class SharedTensor:
    """Tensors that the same layers save for backward: a device with several saves one copy.

    ``none``, ``selective`` and ``full`` are these layers under each recomputation mode, ascending
    positions in ``ModelGraph.sequence``; layer ``source`` makes them (None: inputs). An activation
    between two layers may be one (a ReLU keeps what it makes, the convolution behind it what it
    reads), and so may a table or mask that many layers read.
    """

    source: int | None
    bytes: int
    none: tuple[int, ...]
    selective: tuple[int, ...]
    full: tuple[int, ...]

    def kept_by(self, recompute: Recomputation) -> tuple[int, ...]:
        """The layers that save it under ``recompute``."""
        if isinstance(recompute, RecomputedModules):
            return self.none  # what layers share enters modules
        layers: tuple[int, ...] = getattr(self, recompute)
        return layers

    def moved(
        self, source: int | None, places: Callable[[tuple[int, ...]], tuple[int, ...]]
    ) -> SharedTensor:
        """The same of a layer ``source`` and the ``places`` of layers in another sequence."""
        modes = map(places, (self.none, self.selective, self.full))
        return SharedTensor(source, self.bytes, *modes)

    @property
    def layers(self) -> tuple[int, ...]:
        """All layers that save it under some mode."""
        return tuple(sorted({*self.none, *self.selective, *self.full}))


@dataclass(frozen=True)
class ModelGraph:
    """A training step of a model, per device of its tensor-, context- and expert-parallel groups.

    ``layers`` are the distinct layers; ``sequence[i]`` is the index into ``layers`` of the i-th
    layer executed. Layers depend on each other through ``tensors`` alone, which need not make a
    chain of them. ``shared`` are the tensors that several layers keep: what layers on one device
    save is the sum of ``LayerGraph.saved`` with each of these counted once.
    ``block_parameter_count`` is the part of ``total_parameter_count`` that one repeated block adds;
    0 where blocks differ.
    """

    key: GraphKey  # what the graph was made for
    layers: tuple[LayerGraph, ...]
    sequence: tuple[int, ...]  # layers in order, as places in layers
    tensors: tuple[LayerTensor, ...]
    total_parameter_count: int  # of the whole model, unsharded, unpadded, tied parameters once
    block_parameter_count: int = 0
    shared: tuple[SharedTensor, ...] = ()
    chosen_groups: int = 0  # nodes that have the experts of a token at most (0: any)
    schema_version: int = field(default=SCHEMA_VERSION)  # see Versions
