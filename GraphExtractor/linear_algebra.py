"""What decompositions, solvers, transforms and distances do, by the shapes of their matrices.

None of these is a product of matrices as FLOPs are published (``torch.utils.flop_counter`` counts
none of them), and vector units run them: they are vector work of so many multiply-adds, in steps
that each need the one before (columns that are eliminated, levels of a transform, terms of a sum).
Leading terms of the counts are those of Golub and Van Loan, Matrix Computations (4th edition,
2013): triangular systems section 3.1, LU 3.2, inverses 3.4, LDL 4.1, Cholesky 4.2, QR 5.2, others
7.5, symmetric eigenvalues 8.3, singular values 8.6; two of their FLOPs are a multiply-add. A matrix
exponential is a Taylor polynomial of degree 18, of 5 products (Bader, Blanes and Casas 2019), with
as many squarings; a transform of n elements 5 n log2 n FLOPs (Cooley and Tukey 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch.fx import Node

from GraphExtractor.graph import OperatorKind, VectorWork
from GraphExtractor.products import Work
from GraphExtractor.values import argument, tensors_of

FUNCTION = "mul"  # a multiply-add of a lane


@dataclass(frozen=True)
class _Matrices:
    """``batch`` matrices of ``rows`` x ``columns``, and right-hand sides of ``others`` columns."""

    batch: int
    rows: int
    columns: int
    others: int

    @property
    def order(self) -> int:
        """The shorter side."""
        return min(self.rows, self.columns)


def _two_triangular(given: _Matrices) -> float:
    return given.order**2 * given.others


def _cholesky(given: _Matrices) -> float:
    return given.order**3 / 6


def _lu(given: _Matrices) -> float:
    return given.rows * given.columns * given.order / 2 - given.order**3 / 6


def _reflections(given: _Matrices) -> float:
    return max(given.rows, given.columns) * given.order**2 - given.order**3 / 3


# operator -> multiply-adds of one matrix; an operator of several results does all of it
_MULTIPLY_ADDS: Mapping[str, Callable[[_Matrices], float]] = MappingProxyType(
    {
        name: count
        for names, count in {
            "linalg_solve_triangular triangular_solve": lambda given: _two_triangular(given) / 2,
            "linalg_cholesky_ex linalg_cholesky cholesky linalg_ldl_factor_ex": _cholesky,
            "cholesky_solve linalg_lu_solve linalg_ldl_solve": _two_triangular,
            "cholesky_inverse": lambda given: given.order**3 / 3,
            "unit_lower_inverse": _cholesky,
            # two products of triangular matrices
            "unit_lower_inverse_backward linalg_inv_ex": lambda given: given.order**3,
            "linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet": _lu,
            "_linalg_solve_ex": lambda given: _lu(given) + _two_triangular(given),
            "linalg_qr": lambda given: 2 * _reflections(given),  # triangle and orthogonal factor
            "geqrf linalg_householder_product": _reflections,
            "ormqr": lambda given: 2 * given.rows * given.order * given.others,
            "linalg_lstsq": lambda given: (
                _reflections(given) + given.rows * given.order * given.others
            ),
            "_linalg_svd": lambda given: (
                3 * max(given.rows, given.columns) * given.order**2 + 10 * given.order**3
            ),
            "_linalg_eigh": lambda given: 4.5 * given.order**3,
            "linalg_eig": lambda given: 12.5 * given.order**3,
            "_linalg_eigvals": lambda given: 5 * given.order**3,
            "linalg_matrix_exp": lambda given: 10 * given.order**3,
        }.items()
        for name in names.split()
    }
)
_TRANSFORMS = frozenset({"_fft_c2c", "_fft_r2c", "_fft_c2r"})
_DISTANCES = frozenset({"_cdist_forward", "_cdist_backward", "_euclidean_dist"})


def algebra_work(node: Node, name: str) -> Work | None:
    """The work of an operator of this table; None for any other."""
    if name in _MULTIPLY_ADDS:
        given = _matrices(node, name)
        return _work(given.batch * _MULTIPLY_ADDS[name](given), given.order)
    if name in _TRANSFORMS:
        whole = max((*_tensors(node), node.meta["val"]), key=lambda each: each.numel())
        axes = [whole.shape[axis] for axis in argument(node, "dim")]
        levels = max(sum(math.log2(max(size, 1)) for size in axes), 1.0)
        return _work(2.5 * whole.numel() * levels, math.ceil(levels))
    if name in _DISTANCES:
        tensors = [each for each in _tensors(node) if each.dim() > 1]
        first, second = tensors[1:3] if name == "_cdist_backward" else tensors[-2:]
        width = first.shape[-1]
        return _work(2 * math.prod(first.shape[:-1]) * second.shape[-2] * width, width)
    if name == "_trilinear":
        sizes = [max(each) for each in zip(*_expanded(node), strict=True)]
        return _work(math.prod(sizes), math.prod(sizes[axis] for axis in node.args[6]))
    return None


def _work(multiply_adds: float, steps: int) -> Work:
    """At least one multiply-add in every step."""
    steps = max(steps, 1)
    work = VectorWork(FUNCTION, max(math.ceil(multiply_adds), steps), steps=steps)
    return Work(OperatorKind.REDUCTION, (), (work,))


def _matrices(node: Node, name: str) -> _Matrices:
    shapes = [tuple(each.shape) for each in _tensors(node) if each.dim() > 1]
    if name in ("triangular_solve", "cholesky_solve"):  # their right-hand side comes first
        shapes = shapes[::-1]
    elif name in ("linalg_ldl_solve", "linalg_lu_solve"):
        shapes = [shapes[0], tuple(argument(node, "B").meta["val"].shape)]
    first = shapes[0]
    others = shapes[-1][-1] if len(shapes) > 1 else 1
    return _Matrices(math.prod(first[:-2]), first[-2], first[-1], others)


def _tensors(node: Node) -> list[torch.Tensor]:
    given = (each.meta["val"] for each in node.args if isinstance(each, Node))
    return [tensor for value in given for tensor in tensors_of(value)]


def _expanded(node: Node) -> list[tuple[int, ...]]:
    """Shapes of the factors of a sum of products with the axes that broadcasting puts in."""
    shapes = []
    for factor, places in zip(_tensors(node)[:3], node.args[3:6], strict=True):
        shape = list(factor.shape)
        for place in sorted(places):
            shape.insert(place, 1)
        shapes.append(tuple(shape))
    return shapes
