"""Seconds, joules and bytes of every layer of a model graph on N configurations of hardware: chips
of a space, or one device."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.pass_parts import PassParts
from Estimator.plans.cuts import Crossing, boundary_crossing
from Estimator.plans.groups import GroupNetwork, LayerGroups
from GraphExtractor.graph import (
    AS_TRACED,
    Collective,
    CollectiveGroup,
    Keeping,
    LayerGraph,
    ModelGraph,
    OperandRole,
    Operator,
    Phase,
    Recompute,
    SparseTable,
    Yields,
)
from GraphExtractor.score_mask import masked_flops, skipped_flops
from phaze_common.choices import TensorLayout
from phaze_common.errors import PhazeError
from phaze_common.recompute_modules import Recomputation, RecomputedModules

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Members = NDArray[np.bool_]
EMPTY_GRADIENT_BYTES = 2  # of an element: they have the format of the weights
DIVIDED_LOSS = "cross_entropy"  # function of a loss over the parts of the vocabulary
LOSS_GRADIENT = "nll_loss_backward"  # function that makes the gradient of log-probabilities


@dataclass(frozen=True, eq=False)
class PassCosts:
    """Seconds of one pass of one micro-batch through each layer, arrays of shape (configurations,
    layers).

    ``arithmetic_s`` is what arithmetic takes of the device, ``memory_s`` what memories add to it,
    ``launch_s`` what starting operators does; ``host_s`` is what the host needs to issue them,
    beside the device. ``products_s`` are the seconds of matrix products, behind which
    tensor-parallel collectives can hide; the others are collectives by group: all-reduces of tensor
    parallelism, the gathers and scatters that sequence parallelism makes of them, context and
    expert parallelism. Chips whose schedules nobody attributed to causes have all of a layer's
    makespan, collectives and all, under ``arithmetic_s``.
    """

    arithmetic_s: FloatArray
    memory_s: FloatArray
    launch_s: FloatArray
    host_s: FloatArray
    products_s: FloatArray
    tensor_s: FloatArray
    sequence_s: FloatArray
    context_s: FloatArray
    expert_s: FloatArray

    @staticmethod
    def of_total(seconds: FloatArray) -> PassCosts:
        """Passes of which only the whole is known."""
        # which needs no memory, of thousands of chips and hundreds of graphs
        nothing = np.broadcast_to(0.0, seconds.shape)
        return PassCosts(seconds, *(nothing for _ in range(8)))

    @property
    def device_s(self) -> FloatArray:
        """What occupies the device besides the collectives of tensor-parallel groups."""
        return self.arithmetic_s + self.memory_s + self.launch_s + self.context_s + self.expert_s

    def rows(self, rows: NDArray[np.int64]) -> PassCosts:
        """The same of some configurations."""
        return PassCosts(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class LayerSizes:
    """What no hardware changes, per device: arrays of shape (distinct layers,); layer i of the
    model is ``sequence[i]``.

    ``parameters`` include ``tied_parameters`` and ``expert_parameters``, which some of the devices
    that hold the same others divide among them: experts, or what a 2D layout divides twice; bytes
    are those of one micro-batch. ``saved_bytes`` are those of each layer by itself,
    ``shared_bytes`` those that several save (``saved_by`` counts them once). Tables with sparse
    gradients are told apart by their sizes, as how many rows of each a batch touches grows up to
    the table.
    """

    names: tuple[str, ...]  # of every layer in execution order
    sequence: tuple[int, ...]
    parameters: FloatArray
    expert_parameters: FloatArray
    # of embedding, head, norms and biases, which stay as they are where weights are held in fp8
    wide_parameters: FloatArray
    tied_parameters: FloatArray
    saved_bytes: FloatArray
    shared_bytes: FloatArray  # (shared tensors,)
    shared_by: Members  # (layers, shared tensors): whether a layer of the model saves it
    workspace_bytes: FloatArray
    forward_flops: FloatArray  # of the model: a device's part of those that all devices add up to
    masked_flops: FloatArray  # those of the forward ones whose scores masks leave out
    repeated_flops: FloatArray  # of the model, computed again
    # that a forward pass computes, padding and what other devices compute alike too
    computed_flops: FloatArray
    recomputed_flops: FloatArray  # that are computed again
    # (tables, 3): rows, rows that a micro-batch reads, width of every kind of sparse table
    table_sizes: FloatArray
    # (distinct layers, tables): how many of each a layer has, among its parameters
    tables: FloatArray
    # (distinct layers, 4) seconds of the device if it orthogonalises all matrices
    # (``Estimator.plans.orthogonal``): of dense ones and of experts, and of the largest of both
    matrices_s: FloatArray
    # of activations and temporaries, what the allocator holds beyond them; their bytes here are
    # with it
    spare: float = 0.0
    # of a layer's parameters, those that are whole at a time where ZeRO shards them
    whole_part: FloatArray | float = 1.0

    @cached_property
    def distinct(self) -> NDArray[np.int64]:
        """``sequence`` as an array, shape (layers,)."""
        return np.array(self.sequence, dtype=np.int64)

    @property
    def allocated(self) -> LayerSizes:
        """The same with the bytes of tensors, without what the allocator holds besides."""
        if self.spare == 0.0:
            return self
        names = ("saved_bytes", "shared_bytes", "workspace_bytes")
        return replace(
            self, **{name: getattr(self, name) / (1.0 + self.spare) for name in names}, spare=0.0
        )

    @cached_property
    def summed(self) -> FloatArray:
        """Parameters, those of experts and wide ones of every layer in order, and seconds of dense
        matrices and of experts', (layers, 5)."""
        parameters = self.parameters, self.expert_parameters, self.wide_parameters
        return np.column_stack([*parameters, self.matrices_s[:, :2]])[self.distinct]

    def saved_by(self, members: Members) -> FloatArray:
        """Bytes of a micro-batch that stages of the layers ``members`` (stages, layers) save, each
        tensor once; shape (stages,).

        A tensor that layers of several stages save is saved by each of these stages, which gets it
        from the one before.
        """
        alone: FloatArray = members @ self.saved_bytes[self.distinct]
        times_saved = members.astype(np.float32) @ self.shared_by.astype(np.float32)
        repeated: FloatArray = np.maximum(times_saved - 1.0, 0.0) @ self.shared_bytes
        return alone - repeated

    @property
    def all_saved_bytes(self) -> int:
        """What all layers on one device save of a micro-batch."""
        return int(self.saved_by(np.ones((1, len(self.sequence)), np.bool_))[0])

    @cached_property
    def tables_of_layers(self) -> FloatArray:
        """``tables`` of every layer in execution order, shape (layers, tables)."""
        return self.tables[self.distinct]

    @cached_property
    def of_layers(self) -> FloatArray:
        """All, dense and expert parameters and saved bytes of each layer, and seconds of its
        largest dense matrix and expert's, (layers, 6)."""
        dense, experts = self.parameters - self.expert_parameters, self.expert_parameters
        columns = [self.parameters, dense, experts, self.saved_bytes, self.matrices_s[:, 2:]]
        return np.column_stack(columns)[self.distinct]

    @cached_property
    def all_tied(self) -> float:
        """Parameters that layers own together: each but the first has a copy of its own, unless all
        are on one stage."""
        return float(self.tied_parameters[self.distinct].sum())

    def working_bytes(self, whole_bytes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Workspace of every layer with what is whole of it, and what is whole of it beside another
        one; shapes (layers, K).

        ``whole_bytes`` (K, 3, 2) are per parameter (``Estimator.plans.rates.whole_bytes``).
        """
        dense = self.parameters - self.expert_parameters
        kinds = np.stack([dense, self.expert_parameters, self.wide_parameters], axis=1)
        kinds = kinds * np.reshape(self.whole_part, (-1, 1))
        own, prefetched = (kinds[self.distinct] @ whole_bytes[:, :, which].T for which in (0, 1))
        return self.workspace_bytes[self.distinct][:, None] + own, prefetched


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """What the layers of ``graph`` take under one recomputation mode; passes have shape
    (configurations, distinct layers).

    ``recompute`` is what recomputation runs again before the backward pass, ``accumulation_s``
    (memory) what adds weight gradients to those of earlier micro-batches. ``joules`` are those of
    one micro-batch's passes on one device; None where the hardware's energy is not known.
    """

    graph: ModelGraph
    mode: Recomputation
    sizes: LayerSizes
    forward: PassCosts
    recompute: PassCosts
    backward: PassCosts
    accumulation_s: FloatArray
    joules: FloatArray | None = None

    @cached_property
    def crossing(self) -> Crossing:
        """What crosses the boundary before each layer in execution order, shape (layers,)."""
        return boundary_crossing(self.graph.tensors, len(self.graph.sequence))

    @property
    def configurations(self) -> int:
        """How many configurations are priced."""
        return len(self.accumulation_s)

    def rows(self, rows: NDArray[np.int64]) -> LayerCosts:
        """The same of some configurations."""
        return LayerCosts(
            self.graph,
            self.mode,
            self.sizes,
            self.forward.rows(rows),
            self.recompute.rows(rows),
            self.backward.rows(rows),
            self.accumulation_s[rows],
            None if self.joules is None else self.joules[rows],
        )


def summed_parts(
    costs: PassCosts, configuration: int, layers: Sequence[int] | IntArray, straggler_excess: float
) -> PassParts:
    """Sums over distinct ``layers``, by cause, counted as often as they stand there.

    Arithmetic takes ``straggler_excess`` of its time longer (``PlanRates.straggler_excess``).
    """
    chosen = np.array(layers, dtype=np.int64)
    names = [field.name for field in fields(PassParts)]
    sums = [float(getattr(costs, name)[configuration][chosen].sum()) for name in names]
    parts = PassParts(*sums)
    return replace(parts, arithmetic_s=parts.arithmetic_s * (1.0 + straggler_excess))


def as_laid_out(parts: PassParts, layout: TensorLayout) -> PassParts:
    """``parts`` by what gathers and scatters belong to: in a 2D layout they are no sequence
    parallelism, but tensor parallelism along its two axes."""
    if layout is not TensorLayout.TWO_D:
        return parts
    return replace(parts, tensor_s=parts.tensor_s + parts.sequence_s, sequence_s=0.0)


@dataclass(frozen=True)
class ModedLayer:
    """A distinct layer with what is recomputed of it."""

    index: int
    mode: Recomputation


def moded_layers(
    graph: ModelGraph, recompute: Recomputation
) -> tuple[tuple[ModedLayer, ...], tuple[int, ...]]:
    """Distinct layers under ``recompute`` and, for every layer in execution order, which of them it
    is.

    The ends of the model, embedding and head, keep their activations whatever ``recompute`` says,
    as Megatron-LM does.
    """
    ends = {0, len(graph.sequence) - 1} if len(graph.sequence) > 1 else set()
    every = [
        ModedLayer(index, Recompute.NONE if place in ends else recompute)
        for place, index in enumerate(graph.sequence)
    ]
    distinct = tuple(dict.fromkeys(every))
    place_of = {each: place for place, each in enumerate(distinct)}
    return distinct, tuple(place_of[each] for each in every)


def ends_of(graph: ModelGraph) -> frozenset[int]:
    """Embedding and head among the distinct layers: the first and the last one, unless they are
    like others.

    What frameworks train in fp8 are blocks alone (Transformer Engine, fp8_autocast around them;
    torchtitan, filter_fqns: output).
    """
    ends = {graph.sequence[0], graph.sequence[-1]} if len(graph.sequence) > 1 else set[int]()
    return frozenset(each for each in ends if graph.sequence.count(each) == 1)


def _wide_parameters(layer: LayerGraph, *, is_end: bool) -> int:
    """Parameters whose weights never are in fp8: all but matrices of blocks."""
    held = 0 if is_end else layer.matmul_parameter_count + layer.expert_parameter_count
    return layer.parameter_count - held


def layer_names(graph: ModelGraph) -> tuple[str, ...]:
    """Name of every layer in execution order, numbered from 0 where several have it."""
    names = [graph.layers[index].name for index in graph.sequence]
    often, numbers = Counter(names), defaultdict[str, Iterator[int]](itertools.count)
    return tuple(f"{name}.{next(numbers[name])}" if often[name] > 1 else name for name in names)


def layer_sizes(
    graph: ModelGraph, recompute: Recomputation, panels: int = 1, keeping: Keeping = AS_TRACED
) -> LayerSizes:
    """Parameters, bytes and FLOPs of layers whose 2D products run in ``panels`` pieces."""
    distinct, sequence = moded_layers(graph, recompute)
    more, ends, tokens = 1.0 + keeping.spare, ends_of(graph), graph.key.sequence_length
    of_ends = replace(keeping, in_fp8=False)
    layers = [graph.layers[each.index] for each in distinct]
    kept_as = [of_ends if each.index in ends else keeping for each in distinct]
    kinds = sorted({astuple(table) for layer in layers for table in layer.sparse_tables})
    blocks = [each for each, layer in enumerate(graph.layers) if each not in ends]
    # of which one stands beside the work of every layer of a stage, embedding and head too
    empty_bytes = max((empty_gradient_bytes(graph.layers[each]) for each in blocks), default=0)

    def column(value: Callable[[LayerGraph, Recomputation, Keeping], float]) -> FloatArray:
        modes = [each.mode for each in distinct]
        values = [value(*each) for each in zip(layers, modes, kept_as, strict=True)]
        return np.array(values, dtype=np.float64)

    shared_by = [
        [place in tensor.kept_by(distinct[each].mode) for tensor in graph.shared]
        for place, each in enumerate(sequence)
    ]
    tables = [[each.sparse_tables.count(SparseTable(*kind)) for kind in kinds] for each in layers]
    wide = [
        _wide_parameters(layer, is_end=each.index in ends)
        for layer, each in zip(layers, distinct, strict=True)
    ]
    own_bytes = [0] * len(distinct)
    if keeping.fused_gradients:
        own_bytes = [
            empty_bytes + (empty_gradient_bytes(layer) if each.index in ends else 0)
            for layer, each in zip(layers, distinct, strict=True)
        ]
    return LayerSizes(
        names=layer_names(graph),
        sequence=sequence,
        parameters=column(lambda layer, mode, kept: layer.parameter_count),
        expert_parameters=column(
            lambda layer, mode, kept: layer.expert_parameter_count + layer.twice_divided_count
        ),
        wide_parameters=np.array(wide, dtype=np.float64),
        tied_parameters=column(lambda layer, mode, kept: layer.tied_count),
        saved_bytes=more * column(lambda layer, mode, kept: layer.saved_under(mode, kept)),
        shared_bytes=more * np.array([tensor.bytes for tensor in graph.shared], dtype=np.float64),
        shared_by=np.array(shared_by, np.bool_).reshape(len(sequence), len(graph.shared)),
        workspace_bytes=more
        * (
            column(lambda layer, mode, kept: workspace_bytes(layer, mode, panels, kept))
            + np.array(own_bytes, dtype=np.float64)
        ),
        forward_flops=column(lambda layer, mode, kept: model_flops(layer.forward.operators)),
        masked_flops=column(
            lambda layer, mode, kept: _masked_of_model(layer.forward.operators, tokens)
        ),
        repeated_flops=column(lambda layer, mode, kept: _of_model(_recomputed(layer, mode))),
        computed_flops=column(lambda layer, mode, kept: _computed(layer.forward.operators)),
        recomputed_flops=column(lambda layer, mode, kept: _computed(_recomputed(layer, mode))),
        table_sizes=np.array(
            [(rows, read, width) for rows, width, read in kinds], np.float64
        ).reshape(-1, 3),
        tables=np.array(tables, np.float64),
        matrices_s=np.zeros((len(distinct), 4)),
        spare=keeping.spare,
        whole_part=np.array([largest_weight_part(layer) for layer in layers])
        if keeping.by_weight
        else 1.0,
    )


def largest_weight_part(layer: LayerGraph) -> float:
    """Part of a layer's parameters that are in its largest weight."""
    weights = [
        math.prod(operand.shape)
        for each in layer.forward.operators
        for operand in each.reads
        if operand.role is OperandRole.PARAMETER
    ]
    return min(max(weights, default=0) / max(layer.parameter_count, 1), 1.0)


def _computed(operators: Sequence[Operator]) -> int:
    """FLOPs that ``operators`` compute, without scores that they skip."""
    return sum(each.flops for each in operators) - skipped_flops(operators)


def _of_model(operators: Sequence[Operator]) -> float:
    """FLOPs of the model among those that ``operators`` compute, without scores that they skip."""
    return sum(each.model_share * _computed([each]) for each in operators)


def _masked_of_model(operators: Sequence[Operator], sequence_length: int) -> float:
    return sum(each.model_share * masked_flops([each], sequence_length) for each in operators)


def model_flops(operators: Iterable[Operator]) -> float:
    """FLOPs of the model that a device's ``operators`` do their part of, all scores counted."""
    return sum(each.model_flops for each in operators)


def workspace_bytes(
    layer: LayerGraph, recompute: Recomputation, panels: int = 1, keeping: Keeping = AS_TRACED
) -> int:
    """Temporaries, buffers of what streams, and activations restored before backward."""
    temporaries = layer.single_workspace_bytes if keeping.one_by_one else layer.workspace_bytes
    temporaries -= min(temporaries, loss_gradient_bytes(layer)) if keeping.loss_in_place else 0
    temporaries = max(temporaries, round(keeping.parallel_loss * divided_logits(layer)))
    return temporaries + layer.buffer_bytes(panels) + layer.restored_by(recompute, keeping)


def divided_logits(layer: LayerGraph) -> int:
    """Logits of a device whose loss tensor-parallel devices work out together."""
    return max(
        (
            math.prod(operand.shape)
            for each in layer.forward.operators
            if DIVIDED_LOSS in {work.function for work in each.vector}
            for operand in each.reads
        ),
        default=0,
    )


def empty_gradient_bytes(layer: LayerGraph) -> int:
    """Bytes of one tensor of the shape of each weight of ``layer`` that all tokens meet."""
    return EMPTY_GRADIENT_BYTES * layer.matmul_parameter_count


def loss_gradient_bytes(layer: LayerGraph) -> int:
    """Bytes of the fp32 gradient of log-probabilities of a loss that is not in place."""
    return sum(
        tensor.bytes
        for each in layer.backward.operators
        if LOSS_GRADIENT in {work.function for work in each.vector}
        for tensor in each.writes
    )


def _recomputed(layer: LayerGraph, recompute: Recomputation) -> tuple[Operator, ...]:
    """Operators that make outputs again, those of the model's own checkpoints too."""
    made = [each for each in layer.backward.operators if each.yields is Yields.OUTPUT]
    return (*run_again(layer, recompute), *made)


def run_again(layer: LayerGraph, recompute: Recomputation) -> tuple[Operator, ...]:
    """Forward operators that ``recompute`` runs before or in the backward pass."""
    if recompute is Recompute.FULL:
        return layer.forward.operators
    if isinstance(recompute, RecomputedModules):
        return tuple(each for module in layer.again(recompute) for each in module.operators)
    if recompute is Recompute.SELECTIVE:
        return tuple(
            each for each in layer.backward_selective.operators if each.phase is Phase.FORWARD
        )
    return ()


def step_operators(graph: ModelGraph, recompute: Recomputation) -> Iterator[tuple[Operator, int]]:
    """Operators of a micro-batch's training step, each with how many layers run it."""
    distinct, sequence = moded_layers(graph, recompute)
    for place, count in Counter(sequence).items():
        layer = graph.layers[distinct[place].index]
        recomputed = run_again(layer, distinct[place].mode)
        operators = (*layer.forward.operators, *recomputed, *layer.backward.operators)
        yield from ((operator, count) for operator in operators)


class GraphNetwork:
    """Prices the collectives of ``graph`` where the ``groups`` of devices that communicate within
    its layers lie so.

    Raises:
        PhazeError: they are of other sizes than the graph was made for.
    """

    def __init__(self, graph: ModelGraph, cluster: Cluster, groups: LayerGroups) -> None:
        check_groups(graph, groups)
        self._networks = {each: GroupNetwork(groups.of(each), cluster) for each in CollectiveGroup}

    def seconds(self, collective: Collective) -> float:
        """Seconds of one collective."""
        return self._networks[collective.group].seconds(collective.kind, collective.payload_bytes)


def check_groups(graph: ModelGraph, groups: LayerGroups) -> None:
    """Refuse groups of other sizes than ``graph`` was made for.

    Raises:
        PhazeError: they are.
    """
    key = graph.key
    sizes = tuple(
        each.size for each in (groups.tensor, groups.context, groups.experts, groups.tensor2)
    )
    made_for = key.tp, key.sequence_devices, key.ep, key.tp2
    if sizes != made_for:
        raise PhazeError(
            f"a graph made for groups of {made_for} devices is priced for groups of {sizes}"
        )
