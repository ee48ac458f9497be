"""Attention whose keys and values pass around a ring of devices: its pieces, and how their results
become one.

Of n devices each has one n-th of the keys and values at a time and sends it on (Liu, Zaharia &
Abbeel 2023, Ring Attention). What it computes with each is a kernel of its own: it reads the
queries (backward, all else that is kept of them too) and a part of the keys and values, and writes
a result of full size. All n but the first are merged with what there is so far, in fp32:

* forward, outputs o and logarithms l of the sums of exponentials of each row, by the online softmax
  of fused attention (Milakov & Gimelshein 2018; Dao et al. 2022): ``l' = log(exp l + exp l_i)``,
  ``o' = exp(l - l') o + exp(l_i - l') o_i``;
* backward l is known: gradients of the queries are added up, those of keys and values to what came
  around the ring with them.

A piece has one n-th of the products of the device, and of the scores that a mask leaves it: early
and late chunks of the sequence (``ScoreMask``) make a causal mask leave as many of every piece; of
a window, whose pieces differ, it is the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from Estimator.chips.score_tiles import BACKWARD, FORWARD
from GraphExtractor.graph import DTYPE_BYTES, Gemm, Operator, Phase, VectorWork

SUM_BYTES = 4  # of what partial results are added up in: fp32


@dataclass(frozen=True)
class RingPiece:
    """What one piece multiplies, and the bytes that it reads and writes when it touches every
    operand once."""

    gemms: tuple[Gemm, ...]
    traffic_bytes: int


@dataclass(frozen=True)
class RingMerge:
    """Vector work and bytes read and written of merging one piece with those before it."""

    vector: tuple[VectorWork, ...]
    traffic_bytes: int


def ring_piece(operator: Operator) -> RingPiece:
    """One of the ``operator.ring`` pieces of attention; the whole of it where nothing passes around
    a ring."""
    traffic_bytes = operator.bytes_read + operator.bytes_written
    if operator.ring == 1:
        return RingPiece(operator.gemms, traffic_bytes)
    axes = FORWARD if len(operator.gemms) == len(FORWARD) else BACKWARD
    names = (("m", "k", "n")[each.columns] for each in axes)
    gemms = (
        replace(gemm, **{name: getattr(gemm, name) // operator.ring})
        for gemm, name in zip(operator.gemms, names, strict=True)
    )
    return RingPiece(
        tuple(gemms), traffic_bytes - operator.streamed[0].payload_bytes + _own_bytes(operator)
    )


def ring_merge(operator: Operator) -> RingMerge:
    """What each piece but the first costs besides."""
    element_bytes = DTYPE_BYTES[operator.reads[0].dtype]
    scores = operator.gemms[0]
    rows = scores.batch * scores.m
    if operator.phase is Phase.FORWARD:
        outputs = rows * operator.gemms[-1].n
        functions = {"exp": 2 * rows, "log": rows, "mul": 2 * outputs, "add": outputs}
        traffic_bytes = outputs * (element_bytes + 2 * SUM_BYTES) + rows * 3 * SUM_BYTES
    else:
        queries, own_bytes = rows * scores.k, _own_bytes(operator)
        functions = {"add": queries + own_bytes // element_bytes}
        traffic_bytes = queries * (element_bytes + 2 * SUM_BYTES) + 3 * own_bytes
    return RingMerge(
        tuple(VectorWork(function, elements) for function, elements in functions.items()),
        traffic_bytes,
    )


def ring_messages(operator: Operator) -> int:
    """Messages that a device sends: every part goes n - 1 steps, gradients one more, home."""
    home = 1 if operator.phase is Phase.BACKWARD else 0
    return (operator.ring - 1) * len(operator.streamed) + home


def _own_bytes(operator: Operator) -> int:
    """Bytes of the part of keys and values that a device has at a time."""
    return operator.streamed[0].payload_bytes // operator.ring
