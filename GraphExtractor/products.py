"""Matrix products of torch's operators (linear layers, attention, convolutions), and recurrences.

A scan without products is priced in its sequential form, which does the least work: lanes that the
states of one token do not fill stay idle. A parallel form (Blelloch 1990) needs twice the
operations and gains nothing where they fill them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch.fx import Node

from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    OperatorKind,
    VectorWork,
)
from GraphExtractor.scans import GATES
from GraphExtractor.score_mask import score_mask
from GraphExtractor.values import Use, Value, argument


@dataclass(frozen=True)
class Work:
    """What an operator does, before it is fused with others."""

    kind: OperatorKind
    gemms: tuple[Gemm, ...] = ()
    vector: tuple[VectorWork, ...] = ()
    collective: Collective | None = None
    causal: bool = False
    window: int | None = None
    streamed: tuple[Collective, ...] = ()


def product_work(node: Node, name: str, outputs: tuple[Value, ...]) -> Work | None:
    """The work of a matrix product; None for any other operator."""
    shapes = [tuple(each.meta["val"].shape) for each in node.args if isinstance(each, Node)]
    if name in {"mm", "bmm", "_scaled_mm"}:
        return Work(OperatorKind.GEMM, (_gemm(shapes[0], node.meta["val"].shape),))
    if name in {"addmm", "baddbmm"}:
        bias = VectorWork("add", outputs[0].elements)
        return Work(OperatorKind.GEMM, (_gemm(shapes[1], node.meta["val"].shape),), (bias,))
    if name in {"_grouped_mm", "_scaled_grouped_mm"}:
        return Work(OperatorKind.GEMM, _grouped(shapes[0], shapes[1], node.meta["val"].shape))
    if name in {"attention", "attention_backward"}:
        return _attention_backward(node) if name.endswith("backward") else _attention(node)
    if name.startswith("_scaled_dot_product_"):
        return _fused_attention(node, backward="backward" in name)
    if name == "convolution":
        return _convolution(node, outputs)
    return _convolution_backward(node) if name == "convolution_backward" else None


def _gemm(left: tuple[int, ...], result: tuple[int, ...]) -> Gemm:
    return Gemm(math.prod(result[:-2]), result[-2], left[-1], result[-1])


def _grouped(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]
) -> tuple[Gemm, ...]:
    """One product per group: consecutive rows or columns by a matrix of a batch, or two of these.

    Which rows are a group's is in values: groups are as equal as whole rows are.
    """
    if len(left) == len(right) == 3:
        return (_gemm(left, result),)
    ranks = len(left), len(right)
    if ranks == (2, 2):  # the groups are parts of what is summed over
        parts = _parts(left[1], result[0])
        return tuple(Gemm(groups, left[0], size, right[1]) for groups, size in parts)
    if ranks == (2, 3):
        parts = _parts(left[0], right[0])
        return tuple(Gemm(groups, size, left[1], right[2]) for groups, size in parts)
    parts = _parts(right[1], left[0])
    return tuple(Gemm(groups, left[1], left[2], size) for groups, size in parts)


def _parts(size: int, groups: int) -> list[tuple[int, int]]:
    """``size`` in ``groups`` parts that differ by one at most: how many have which size."""
    larger, least = size % groups, size // groups
    counts = (larger, least + 1), (groups - larger, least)
    return [(count, each) for count, each in counts if count and each]


def received(node: Node, name: str, uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """What a product reads of other devices' parts, which it receives while it runs."""
    if name not in {"attention", "attention_backward"} or argument(node, "ring") == 1:
        return ()
    passed, others = [argument(node, each) for each in "kv"], argument(node, "ring") - 1
    shapes = ((use, use.shape) for use in uses if use.view in passed)
    return tuple(replace(use, shape=(*s[:2], others * s[2], s[3])) for use, s in shapes)


@dataclass(frozen=True)
class _Scores:
    """Scores of one attention: (rows x width) by (width x columns), and what is done to them."""

    batch: int
    rows: int
    columns: int
    width: int
    value_width: int
    causal: bool
    window: int | None
    dropout: bool
    capped: bool
    biased: bool
    sunk: bool

    @staticmethod
    def of(node: Node) -> _Scores:
        q, k, v = (argument(node, name).meta["val"].shape for name in "qkv")
        given = {name: argument(node, name) for name in ("causal", "window", "capped")}
        bias, sinks = (argument(node, name) is not None for name in ("bias", "sinks"))
        sizes = q[0] * q[1], q[2], k[2] * argument(node, "ring"), q[3], v[3]
        return _Scores(
            *sizes, **given, dropout=bool(argument(node, "dropout")), biased=bias, sunk=sinks
        )

    @property
    def count(self) -> int:
        """Scores that the mask leaves: vector work is done on no others."""
        mask = score_mask(self.rows, self.columns, self.causal, self.window)
        return self.batch * (self.rows * self.columns if mask is None else mask.left)

    def before_softmax(self) -> tuple[VectorWork, ...]:
        """Cap (scaling back is the softmax's) and bias; a sink is one exponential per row."""
        cap = (VectorWork("tanh", self.count), VectorWork("mul", self.count)) if self.capped else ()
        bias = (VectorWork("add", self.count),) if self.biased else ()
        return (*cap, *bias, *((VectorWork("exp", self.batch * self.rows),) if self.sunk else ()))


def _attention(node: Node) -> Work:
    """Products of all rows and columns, as FLOPs are published (``score_mask``)."""
    scores = _Scores.of(node)
    drop = (VectorWork("dropout", scores.count),) if scores.dropout else ()
    gemms = (
        Gemm(scores.batch, scores.rows, scores.width, scores.columns),
        Gemm(scores.batch, scores.rows, scores.columns, scores.value_width),
    )
    vector = (*scores.before_softmax(), VectorWork("softmax", scores.count), *drop)
    return Work(
        OperatorKind.ATTENTION, gemms, vector, None, scores.causal, scores.window, _passed(node, 1)
    )


def _passed(node: Node, times: int) -> tuple[Collective, ...]:
    """Keys and values on their way around a ring, and as many tensors of their size."""
    ring: int = argument(node, "ring")
    sizes = [argument(node, name).meta["val"] for name in "kv"]
    payload = ring * sum(each.numel() * each.element_size() for each in sizes)
    passing = Collective(CollectiveKind.PASS, payload, ring, CollectiveGroup.CONTEXT)
    return (passing,) * times if ring > 1 else ()


def _attention_backward(node: Node) -> Work:
    """Five products: the scores again, dV, dP, dQ and dK (Dao et al. 2022, algorithm 4).

    The gradient of a bias is the sum of the scores' gradients over what shares it, that of a sink
    the sum over rows of its part of the softmax times the row's sum.
    """
    scores = _Scores.of(node)
    batch, rows, columns, width = scores.batch, scores.rows, scores.columns, scores.width
    value_width = scores.value_width
    count, out = scores.count, batch * rows * value_width
    of_bias, of_sinks = (any(user.args[1] == result for user in node.users) for result in (3, 4))
    gemms = (
        Gemm(batch, rows, width, columns),
        Gemm(batch, columns, rows, value_width),
        Gemm(batch, rows, value_width, columns),
        Gemm(batch, rows, columns, width),
        Gemm(batch, columns, rows, width),
    )
    functions = [
        ("mul", out),  # row sums
        ("sum", out),
        *((work.function, work.elements) for work in scores.before_softmax()),
        ("exp", count),
        ("softmax_backward", count),
    ]
    if scores.dropout:
        functions += [("dropout", count), ("dropout_backward", count)]
    if scores.capped:
        functions.append(("tanh_backward", count))
    if of_bias:
        functions.append(("sum", count))
    if of_sinks:
        functions += [("mul", batch * rows), ("sum", batch * rows)]
    vector = tuple(VectorWork(function, elements) for function, elements in functions)
    return Work(
        OperatorKind.ATTENTION, gemms, vector, None, scores.causal, scores.window, _passed(node, 2)
    )


def _fused_attention(node: Node, *, backward: bool) -> Work:
    """A kernel of torch's that code calls by name: two products, or five backward."""
    q, k, v = (tuple(argument(node, name).meta["val"].shape) for name in ("query", "key", "value"))
    batch, rows, columns, width, value_width = math.prod(q[:-2]), q[-2], k[-2], q[-1], v[-1]
    scores, values = Gemm(batch, rows, width, columns), Gemm(batch, rows, columns, value_width)
    gemms = (scores, values) if not backward else (scores, *(values,) * 2, *(scores,) * 2)
    softmax = VectorWork("softmax_backward" if backward else "softmax", batch * rows * columns)
    causal = bool(argument(node, "is_causal")) and rows == columns
    return Work(OperatorKind.ATTENTION, gemms, (softmax,), causal=causal)


def _im2col(
    activations: tuple[int, ...],
    weight: tuple[int, ...],
    result: tuple[int, ...],
    groups: int,
    transposed: bool,
) -> Gemm:
    """A convolution as the product of its im2col form: (positions x inner) by (inner x channels).

    A transposed one is the input gradient of another: it reads a position and writes what the
    kernel covers around it.
    """
    swept = activations if transposed else result
    positions = swept[0] * math.prod(swept[2:])
    # a transposed weight is (channels in, channels out / groups, kernel)
    first, others = weight[0] // groups, math.prod(weight[1:])
    inner, channels = (first, others) if transposed else (others, first)
    return Gemm(groups, positions, inner, channels)


def _convolution(node: Node, outputs: tuple[Value, ...]) -> Work:
    activations, weight = (tuple(argument.meta["val"].shape) for argument in node.args[:2])
    result, groups, transposed = tuple(node.meta["val"].shape), node.args[8], node.args[6]
    product = _im2col(activations, weight, result, groups, transposed)
    bias = (VectorWork("add", outputs[0].elements),) if node.args[2] is not None else ()
    return Work(OperatorKind.CONV, (product,), bias)


def _convolution_backward(node: Node) -> Work:
    """One operator computes all gradients that are needed."""
    result, activations, weight = (tuple(argument.meta["val"].shape) for argument in node.args[:3])
    form = _im2col(activations, weight, result, node.args[9], node.args[7])
    of_input, of_weight, of_bias = node.args[10]
    gemms = (replace(form, k=form.n, n=form.k),) * of_input
    gemms += (Gemm(form.batch, form.n, form.m, form.k),) * of_weight
    sums = (VectorWork("sum", math.prod(result)),) if of_bias else ()
    return Work(OperatorKind.CONV, gemms, sums)


def scan_work(node: Node, name: str) -> Work | None:
    """The work of a recurrence; None for any other operator."""
    if name in ("selective_scan", "selective_scan_backward"):
        return _selective_scan(node, name)
    if name in ("linear_scan", "linear_scan_backward"):
        # a selective scan of one state, which nothing reads out
        gate = _shape(node.args[1])
        function = name.replace("linear", "selective")
        return Work(OperatorKind.SCAN, (), (VectorWork(function, math.prod(gate), steps=gate[1]),))
    if name in ("wkv", "wkv_backward"):
        key = _shape(node.args[2 if name == "wkv" else 3])
        return Work(OperatorKind.SCAN, (), (VectorWork(name, math.prod(key), steps=key[1]),))
    return _recurrence(node, name) if name in ("recurrence", "recurrence_backward") else None


def _selective_scan(node: Node, name: str) -> Work:
    """States of (batch, channels, state size) per token; products with C read them out."""
    backward = name.endswith("backward")
    batch, channels, tokens = _shape(node.args[1 if backward else 0])
    elements = batch * channels * tokens * _shape(node.args[3 if backward else 2])[1]
    macs = elements * (2 if backward else 1)
    return Work(OperatorKind.SCAN, (), (VectorWork(name, elements, steps=tokens, macs=macs),))


def _recurrence(node: Node, name: str) -> Work:
    """A product with the recurrent weights, and the gates, per token; backward one of its own."""
    backward = name.endswith("backward")
    mode = next(argument for argument in node.args if isinstance(argument, str))
    batch, tokens, width = _shape(node.args[0])
    gates = GATES[mode]
    width = width if backward else width // gates
    function = f"{mode}_cell{'_backward' if backward else ''}"
    cell = VectorWork(function, batch * tokens * width, steps=tokens)
    inner, columns = (gates * width, width) if backward else (width, gates * width)
    # none leads to a first state that is not trained
    products = tokens if not backward or node.args[-1] else tokens - 1
    gemms = (Gemm(products, batch, inner, columns, dependent=True),) if products else ()
    return Work(OperatorKind.SCAN, gemms, (cell,))


def _shape(argument: object) -> tuple[int, ...]:
    assert isinstance(argument, Node)  # a tensor of the schema
    return tuple(argument.meta["val"].shape)
