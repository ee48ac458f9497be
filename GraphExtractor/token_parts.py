"""One device's part of operators that treat every token alike, when several devices share the tokens of every sequence."""

from __future__ import annotations

import math
from dataclasses import replace

from Common.errors import InputError
from GraphExtractor.graph import Gemm, GraphKey, Operand, OperandRole, Operator, OperatorKind, Phase, VectorWork, Yields

_OVER_TOKENS = frozenset({"sum", "embedding_backward", "scatter_add"})  # vector work of weight gradients that reads activations


class TokenParts:
    """Cuts what runs over tokens by ``cp``; which axes do is told by their lengths, and by what an operand is."""

    def __init__(self, key: GraphKey, cp: int) -> None:
        parts = {1, key.tp} if key.sequence_parallel else {1}
        self.key, self.cp = key, cp
        self._lengths_of_one = frozenset(key.sequence_length // part for part in parts)
        self._lengths = self._lengths_of_one | {length * key.micro_batch_size for length in self._lengths_of_one}

    def share(self, amount: int) -> int:
        """One device's part of an amount, rounded up where a few elements belong to no token."""
        return -(-amount // self.cp)

    def operator(self, operator: Operator) -> Operator:
        """Cut an operator; what has no tokens (sums of weight gradients, a pooler) stays whole.

        Raises:
            InputError: it multiplies tokens with each other.
        """
        weights = operator.yields is Yields.WEIGHT_GRADIENT
        if weights and operator.kind in (OperatorKind.ELEMENTWISE, OperatorKind.MOVE):
            return operator
        gemms = tuple(self._product(operator, gemm) for gemm in operator.gemms)
        reads = self._reads(operator)
        writes = operator.writes if weights else tuple(map(self.operand, operator.writes))
        cut = [whole for whole, part in zip((*operator.reads, *operator.writes), (*reads, *writes), strict=True) if whole != part]
        sizes = {math.prod(operand.shape) for operand in cut}

        def runs_over_tokens(work: VectorWork) -> bool:
            if weights:
                return bool(cut) and work.function in _OVER_TOKENS
            return work.elements in sizes if operator.gemms and gemms == operator.gemms else bool(cut)

        collective = operator.collective
        return replace(
            operator,
            gemms=gemms,
            vector=tuple(
                replace(work, elements=self.share(work.elements)) if runs_over_tokens(work) else work for work in operator.vector
            ),
            reads=reads,
            writes=writes,
            collective=replace(collective, payload_bytes=self.share(collective.payload_bytes)) if collective else None,
        )

    def operand(self, operand: Operand) -> Operand:
        """Cut the first axis over tokens of an operand, if it has one.

        Parameters, constants and the gradients of vectors of parameters are whole on every device. The rows of a matrix of the
        model's dtype are tokens, its columns features; what is kept per token (ids, statistics) has another dtype.
        """
        role, shape = operand.role, operand.shape
        if role in (OperandRole.PARAMETER, OperandRole.CONSTANT) or (role is OperandRole.GRADIENT and len(shape) == 1):
            return operand
        features = len(shape) == 2 and operand.dtype == self.key.dtype != "float32"
        return replace(operand, shape=self._cut(shape, 1 if features else len(shape)))

    def _cut(self, shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
        """Cut the first of the leading ``axes`` that runs over tokens; only axis 0 can hold those of all sequences."""
        for axis, size in enumerate(shape[:axes]):
            if size in (self._lengths_of_one if axis else self._lengths):
                return (*shape[:axis], size // self.cp, *shape[axis + 1 :])
        return shape

    def _product(self, operator: Operator, gemm: Gemm) -> Gemm:
        """Rows are tokens, or summed over in a weight gradient."""
        weights = operator.yields is Yields.WEIGHT_GRADIENT
        rows = gemm.k if weights else gemm.m
        if operator.kind is OperatorKind.GEMM and gemm.batch == 1 and rows in self._lengths:
            return replace(gemm, k=rows // self.cp) if weights else replace(gemm, m=rows // self.cp)
        if operator.kind is OperatorKind.GEMM and rows == self.key.micro_batch_size:  # one token of each sequence
            return gemm
        raise InputError(
            f"{operator.name} of {self.key.model} mixes tokens outside attention, so that a sequence cannot be cut; "
            "use context parallel degree 1"
        )

    def _reads(self, operator: Operator) -> tuple[Operand, ...]:
        """Operands read; rows of an embedding are cut, weight gradients that are added to are not."""
        rows = operator.kind is OperatorKind.GATHER and operator.phase is Phase.FORWARD
        whole = added_to(operator)
        weights = operator.yields is Yields.WEIGHT_GRADIENT
        transposed = {(gemm.m, gemm.k) for gemm in operator.gemms if weights and gemm.k in self._lengths}
        parts = []
        for operand in operator.reads:
            if rows and operand.role is OperandRole.PARAMETER:
                parts.append(replace(operand, shape=self._cut(operand.shape, len(operand.shape) - 1)))
            elif operand.shape in transposed:  # (features, tokens)
                parts.append(replace(operand, shape=(operand.shape[0], operand.shape[1] // self.cp)))
            else:
                parts.append(operand if any(operand is each for each in whole) else self.operand(operand))
        return tuple(parts)


def added_to(operator: Operator) -> tuple[Operand, ...]:
    """Weight gradients made elsewhere to which an operator adds: they are read last and look like what it writes."""
    if operator.yields is not Yields.WEIGHT_GRADIENT:
        return ()
    added = sum(work.function == "add" for work in operator.vector)
    shapes = {operand.shape for operand in operator.writes}
    gradients = [each for each in operator.reads if each.role is OperandRole.GRADIENT and each.shape in shapes]
    return tuple(gradients[-added:]) if added else ()
