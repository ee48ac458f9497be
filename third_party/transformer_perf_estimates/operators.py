"""What one operator of a layer computes, reads, keeps and sends: on one GPU, for one micro-batch.

Formulas and names are those of transformer-perf-estimates (arXiv 2410.00273). Sizes are already
those of one GPU: ``rows`` tokens of the micro-batch (b l'), widths e' and f' after sharding. All
arrays have the shape of the layouts, (layouts,), and so do results.
"""

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from phaze_common.array_types import FloatArray

from .corrections import Correction, Corrections
from .models import TransformerModel


class Axis(Enum):
    """The group that takes part in a collective."""

    TP1 = auto()
    TP2 = auto()


class Collective(Enum):
    """How a tensor is exchanged."""

    GATHER = auto()  # all-gather or reduce-scatter, which take equally long
    BROADCAST = auto()  # or reduce
    ALL_REDUCE = auto()


@dataclass(frozen=True, eq=False)
class Message:
    """A collective over ``elements`` numbers, the whole tensor."""

    collective: Collective
    axis: Axis
    elements: FloatArray


@dataclass(frozen=True, eq=False)
class Pass:
    """One direction of an operator."""

    operations: FloatArray
    traffic: FloatArray  # elements to and from the memory
    masks: FloatArray | float = 0.0  # elements of dropout masks to and from it
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, eq=False)
class Operator:
    """Both directions of an operator and what it holds."""

    name: str
    forward: Pass
    backward: Pass
    weights: FloatArray | float = 0.0  # elements
    kept: FloatArray | float = 0.0  # elements of activations until backward
    kept_masks: FloatArray | float = 0.0
    on_tensor_cores: bool = False
    in_panels: bool = False  # messages overlap the product, panel by panel (SUMMA)


@dataclass(frozen=True, eq=False)
class Shards:
    """Layouts of a layer: how many devices share each dimension, and sizes after sharding; arrays
    (layouts,)."""

    model: TransformerModel
    micro_batch: FloatArray  # sequences
    tp1: FloatArray  # over heads and features
    tp2: FloatArray  # over tokens; of SUMMA over the other dimension of weights too
    panels: FloatArray  # of a SUMMA product
    corrections: Corrections

    def split(self, size: int, parts: FloatArray) -> FloatArray:
        """A dimension on one of ``parts`` devices."""
        share = size / parts
        return share if Correction.EXACT_SHARDS in self.corrections else np.floor(share)

    def tokens(self, parts: FloatArray) -> FloatArray:
        """Tokens of one sequence on one of ``parts`` devices."""
        return self.split(self.model.sequence_length, parts)

    def rows(self, parts: FloatArray) -> FloatArray:
        """Tokens of the micro-batch on one of ``parts`` devices."""
        return self.micro_batch * self.tokens(parts)


def linear(
    name: str,
    rows: FloatArray,
    inputs: FloatArray,
    outputs: FloatArray,
    sent: tuple[Message | None, Message | None],
) -> Operator:
    """A product with a weight matrix on one side of a tensor parallel pair, and its message forward
    and backward."""
    forward, backward = (() if each is None else (each,) for each in sent)
    activations, weights = rows * (inputs + outputs), inputs * outputs
    return Operator(
        name,
        Pass(rows * outputs * (2.0 * inputs - 1.0), activations + weights, messages=forward),
        Pass(
            rows * inputs * (2.0 * outputs - 1.0) + weights * (2.0 * rows - 1.0),
            2.0 * (weights + activations),
            messages=backward,
        ),
        weights=weights,
        kept=rows * inputs,
        on_tensor_cores=True,
    )


def linear_summa(name: str, shards: Shards, inputs: int, outputs: int) -> Operator:
    """A product in panels on tp1 columns x tp2 rows of devices (van de Geijn and Watts 1997)."""
    rows, columns = shards.rows(shards.tp2), shards.split(outputs, shards.tp1)
    of_rows, of_weights = rows * inputs, inputs * columns
    partial = shards.panels * rows * columns  # the result is read and written for every panel
    activations = Message(Collective.BROADCAST, Axis.TP1, of_rows)
    weights = Message(Collective.BROADCAST, Axis.TP2, of_weights)
    return Operator(
        name,
        Pass(
            2.0 * rows * of_weights, of_rows + of_weights + partial, messages=(activations, weights)
        ),
        Pass(
            of_rows * (2.0 * columns - 1.0) + of_weights * (2.0 * rows - 1.0),
            2.0 * (of_weights + partial + of_rows),
            messages=(weights, activations, activations, weights),
        ),
        weights=shards.split(inputs, shards.tp2) * columns,
        kept=rows * shards.split(inputs, shards.tp1),
        on_tensor_cores=True,
        in_panels=True,
    )


def bias(name: str, rows: FloatArray, width: FloatArray) -> Operator:
    """Adding a vector to every token."""
    once = Pass(rows * width, rows * width + width)
    return Operator(name, once, once, weights=width)


def gelu(name: str, elements: FloatArray) -> Operator:
    """GELU."""
    return Operator(
        name,
        Pass(8.0 * elements, 2.0 * elements),
        Pass(13.0 * elements, 3.0 * elements),
        kept=elements,
    )


def dropout(name: str, elements: FloatArray) -> Operator:
    """Dropout, with its mask kept."""
    once = Pass(elements, 2.0 * elements, masks=elements)
    return Operator(name, once, once, kept_masks=elements)


def norm(name: str, shards: Shards, parts: FloatArray) -> Operator:
    """Layer normalisation of whole tokens, split over ``parts`` devices; those of TP1 gather their
    sequence behind it."""
    rows, width = shards.rows(parts), float(shards.model.hidden)
    gathered = (Message(Collective.GATHER, Axis.TP1, shards.rows(shards.tp2) * width),)
    return Operator(
        name,
        Pass(9.0 * rows * width, 2.0 * (rows * width + rows + width), messages=gathered),
        Pass(
            8.0 * rows * width + 4.0 * rows * (width - 1.0),
            5.0 * rows * width + 2.0 * width,
            messages=gathered,
        ),
        weights=np.full_like(rows, 2.0 * width),
        kept=rows * width,
    )


def norm_2d(name: str, shards: Shards) -> Operator:
    """Layer normalisation of tokens split over tp2 whose features are split over tp1: statistics
    are all-reduced."""
    model = shards.model
    rows = shards.rows(shards.tp2)
    features = shards.split(shards.model.hidden, shards.tp1)
    if Correction.NORM_WIDTH in shards.corrections:
        width = features
    else:
        width = np.floor(model.sequence_length / shards.tp1)
    forward = Message(Collective.ALL_REDUCE, Axis.TP1, 2.0 * rows)
    tokens = shards.micro_batch * model.sequence_length / shards.tp2
    backward = Message(Collective.ALL_REDUCE, Axis.TP1, 2.0 * (features + tokens))
    return Operator(
        name,
        Pass(9.0 * rows * width, 2.0 * (rows * width + rows + width), messages=(forward,)),
        Pass(
            8.0 * rows * width + 4.0 * rows * (width - 1.0),
            5.0 * rows * width + 2.0 * width,
            messages=(backward,),
        ),
        weights=2.0 * width,
        kept=rows * width,
    )


def fused_attention(name: str, shards: Shards, matrix_over_vector: float) -> Operator:
    """Tiled attention of the device's tokens (rows, over tp2) on all tokens, for its heads (over
    tp1); scores are not kept.

    Keys and values are gathered over TP2, again for backward, and their gradients scattered.
    Operations that do not run on tensor cores count ``matrix_over_vector`` times, so that they take
    the time of the vector units.
    """
    length, width = float(shards.model.sequence_length), shards.model.hidden / shards.model.heads
    tokens = shards.tokens(shards.tp2)
    sets = shards.micro_batch * shards.split(shards.model.heads, shards.tp1)
    scores, rows, columns = sets * tokens * length, sets * tokens * width, sets * length * width
    logits, attended = scores * (2.0 * width - 1.0), rows * (2.0 * length - 1.0)
    of_columns = columns * (2.0 * tokens - 1.0)  # gradients of keys, and of values
    statistics = sets * tokens
    softmax_dropout = matrix_over_vector * (statistics * (3.0 * length - 1.0) + scores)
    gradient = matrix_over_vector * (statistics * (4.0 * length - 1.0) + scores)
    kept = 4.0 * rows + 2.0 * statistics
    exchanged = Message(Collective.GATHER, Axis.TP2, 2.0 * columns)
    forward = logits + softmax_dropout
    return Operator(
        name,
        Pass(forward + attended, 2.0 * rows + 2.0 * columns + statistics, messages=(exchanged,)),
        Pass(
            attended + 2.0 * of_columns + gradient + logits + forward,
            2.0 * columns + 2.0 * rows + kept,
            messages=(exchanged, exchanged),
        ),
        kept=kept,
        on_tensor_cores=True,
    )
