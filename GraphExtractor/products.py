"""Matrix products of torch's operators: linear layers, fused attention and convolutions, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.fx import Node

from GraphExtractor.graph import Collective, Gemm, OperatorKind, VectorWork
from GraphExtractor.values import Value


@dataclass(frozen=True)
class Work:
    """What an operator does, before it is fused with others."""

    kind: OperatorKind
    gemms: tuple[Gemm, ...] = ()
    vector: tuple[VectorWork, ...] = ()
    collective: Collective | None = None
    causal: bool = False


def product_work(node: Node, name: str, outputs: tuple[Value, ...]) -> Work | None:
    """The work of a matrix product; None for any other operator."""
    shapes = [tuple(argument.meta["val"].shape) for argument in node.args if isinstance(argument, Node)]
    if name in {"mm", "bmm"}:
        return Work(OperatorKind.GEMM, (_gemm(shapes[0], node.meta["val"].shape),))
    if name in {"addmm", "baddbmm"}:
        return Work(OperatorKind.GEMM, (_gemm(shapes[1], node.meta["val"].shape),), (VectorWork("add", outputs[0].elements),))
    if name == "_grouped_mm":
        return Work(OperatorKind.GEMM, _grouped(shapes[0], shapes[1], node.meta["val"].shape))
    if name == "attention":
        q, k, v, *bias = shapes
        return _attention(q, k, v, node.args[3], node.args[4], biased=bool(bias))
    if name == "attention_backward":
        _, q, k, v, _, _, *bias = shapes
        of_bias = any(user.args[1] == 3 for user in node.users)
        return _attention_backward(q, k, v, node.args[6], node.args[7], biased=bool(bias), of_bias=of_bias)
    if name == "convolution":
        return _convolution(node, outputs)
    return _convolution_backward(node) if name == "convolution_backward" else None


def _gemm(left: tuple[int, ...], result: tuple[int, ...]) -> Gemm:
    return Gemm(math.prod(result[:-2]), result[-2], left[-1], result[-1])


def _grouped(left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]) -> tuple[Gemm, ...]:
    """One product per group, of a batch of matrices with consecutive rows (or columns) of the other operand, or of two such.

    Which rows are a group's is in values: groups are equal, and where they cannot be, as nearly so as whole rows are.
    """
    if len(left) == len(right) == 3:
        return (_gemm(left, result),)
    if len(left) == len(right) == 2:  # the groups are parts of what is summed over
        return tuple(Gemm(groups, left[0], size, right[1]) for groups, size in _parts(left[1], result[0]))
    if len(left) == 2:
        return tuple(Gemm(groups, size, left[1], right[2]) for groups, size in _parts(left[0], right[0]))
    return tuple(Gemm(groups, left[1], left[2], size) for groups, size in _parts(right[1], left[0]))


def _parts(size: int, groups: int) -> list[tuple[int, int]]:
    """``size`` in ``groups`` parts that differ by one at most: how many have which size."""
    larger = size % groups
    return [(count, each) for count, each in ((larger, size // groups + 1), (groups - larger, size // groups)) if count and each]


def _attention(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, dropout: float, *, biased: bool) -> Work:
    """Full s x s products even when causal, as Phaze's graphs and the FLOP formula of Korthikanti et al. 2022 have them."""
    batch, rows, columns, width, value_width = q[0] * q[1], q[2], k[2], q[3], v[3]
    scores = batch * rows * columns
    bias = (VectorWork("add", scores),) if biased else ()
    drop = (VectorWork("dropout", scores),) if dropout else ()
    gemms = (Gemm(batch, rows, width, columns), Gemm(batch, rows, columns, value_width))
    return Work(OperatorKind.ATTENTION, gemms, (*bias, VectorWork("softmax", scores), *drop), causal=causal)


def _attention_backward(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, dropout: float, *, biased: bool, of_bias: bool
) -> Work:
    """Five products: the scores again, dV, dP, dQ and dK (Dao et al. 2022, algorithm 4).

    The gradient of a bias is the sum of the scores' gradients over what shares it.
    """
    batch, rows, columns, width, value_width = q[0] * q[1], q[2], k[2], q[3], v[3]
    scores, out = batch * rows * columns, batch * rows * value_width
    drop = (VectorWork("dropout", scores), VectorWork("dropout_backward", scores)) if dropout else ()
    gemms = (
        Gemm(batch, rows, width, columns),
        Gemm(batch, columns, rows, value_width),
        Gemm(batch, rows, value_width, columns),
        Gemm(batch, rows, columns, width),
        Gemm(batch, columns, rows, width),
    )
    row_sums = (VectorWork("mul", out), VectorWork("sum", out))
    bias = (VectorWork("add", scores),) if biased else ()
    softmax = (VectorWork("exp", scores), VectorWork("softmax_backward", scores))
    bias_gradient = (VectorWork("sum", scores),) if of_bias else ()
    return Work(OperatorKind.ATTENTION, gemms, (*row_sums, *bias, *softmax, *drop, *bias_gradient), causal=causal)


@dataclass(frozen=True)
class _Convolution:
    """A convolution as the product of its im2col form, per group: (positions x inner) by (inner x channels).

    A transposed one is the input gradient of another: it reads a position and writes what the kernel covers around it.
    """

    groups: int
    positions: int
    inner: int
    channels: int

    @staticmethod
    def of(
        activations: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...], groups: int, *, transposed: bool
    ) -> _Convolution:
        swept = activations if transposed else result
        positions = swept[0] * math.prod(swept[2:])
        if transposed:  # weight is (channels in, channels out / groups, kernel)
            return _Convolution(groups, positions, weight[0] // groups, math.prod(weight[1:]))
        return _Convolution(groups, positions, math.prod(weight[1:]), weight[0] // groups)


def _convolution(node: Node, outputs: tuple[Value, ...]) -> Work:
    activations, weight = (tuple(argument.meta["val"].shape) for argument in node.args[:2])
    form = _Convolution.of(activations, weight, tuple(node.meta["val"].shape), node.args[8], transposed=node.args[6])
    bias = (VectorWork("add", outputs[0].elements),) if node.args[2] is not None else ()
    return Work(OperatorKind.CONV, (Gemm(form.groups, form.positions, form.inner, form.channels),), bias)


def _convolution_backward(node: Node) -> Work:
    """One operator computes all gradients that are wanted."""
    result, activations, weight = (tuple(argument.meta["val"].shape) for argument in node.args[:3])
    form = _Convolution.of(activations, weight, result, node.args[9], transposed=node.args[7])
    of_input, of_weight, of_bias = node.args[10]
    gemms = (Gemm(form.groups, form.positions, form.channels, form.inner),) * of_input
    gemms += (Gemm(form.groups, form.channels, form.positions, form.inner),) * of_weight
    return Work(OperatorKind.CONV, gemms, (VectorWork("sum", math.prod(result)),) if of_bias else ())
