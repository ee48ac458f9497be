"""How tensors lie between operators, and what changing that costs: Aceso's rules.

A tensor lies over the devices of a stage as so many replicas, and so many parts along each of up to
three axes. A change from one to the next is a split, an all-gather or an all-to-all over the ratio
that changes.
"""

import math
from dataclasses import dataclass

from .database import Database, Field

SPLIT_BY_COLUMNS_FIRST = ("enc-attention-qkv", "enc-MLP-GEMM-1")
SPLIT_BY_ROWS_FIRST = ("enc-attention-dense", "enc-MLP-GEMM-2")
IN_HEADS = ("enc-attention-softmax", "enc-attention-dropout")

Spread = tuple[int, int, int, int]  # replicas, parts along three axes


@dataclass(frozen=True)
class Choice:
    """How an operator runs: width of tensor parallelism, data parallel degree, and which of its
    dimensions is split."""

    tp: int
    dp: int
    algorithm: int


def spread(database: Database, operator: int, choice: Choice, *, of_input: bool) -> Spread | None:
    """How the input or output of an operator lies; absent where nothing is ever changed there."""
    tp, dp = choice.tp, choice.dp
    if database.model.family.name == "resnet":
        return (tp, dp, 1, 1)
    name = database.names[operator]
    whole, last, first, heads = (tp, 1, dp, 1), (1, 1, dp, tp), (tp, dp, 1, 1), (1, dp, tp, 1)
    if name == "encoder-embedding":
        return None if of_input else whole
    if name == "gpt-post-process":
        return first if of_input else None
    if name == "final-layernorm":
        return whole if of_input else first
    if name in SPLIT_BY_COLUMNS_FIRST:
        return whole if (choice.algorithm == 0) == of_input else last
    if name in SPLIT_BY_ROWS_FIRST:
        return last if (choice.algorithm == 0) == of_input else whole
    if name == "enc-attention-score":
        return last if of_input else heads
    if name == "enc-attention-context":
        return heads if of_input else last
    if name in IN_HEADS:
        return heads
    return last if name == "enc-MLP-gelu" else whole


def resharding_us(
    database: Database, before: int, left: Choice, after: int, right: Choice, micro_batch: int
) -> tuple[float, float]:
    """Forward and backward microseconds between two operators that follow each other; infinite
    where nothing was measured."""
    if not database.model.family.reshards:
        return 0.0, 0.0
    source = spread(database, before, left, of_input=False)
    target = spread(database, after, right, of_input=True)
    if source is None or target is None or source == target:
        return 0.0, 0.0
    size = float(
        database.of(micro_batch // right.dp, right.tp, right.algorithm)[Field.INPUT, after]
    )
    if source[0] > target[0]:
        return 0.0, _collective_us(database, "all_gather", source[0] // target[0], size)
    shrunk = [axis for axis in (1, 2, 3) if source[axis] > target[axis]]
    if not shrunk:
        return math.inf, math.inf
    ratio = source[shrunk[0]] // target[shrunk[0]]
    if source[0] < target[0]:
        return _collective_us(database, "all_gather", ratio, size), 0.0
    both = _collective_us(database, "all_to_all", ratio, size)
    return both, both


def _collective_us(database: Database, name: str, devices: int, size_mib: float) -> float:
    found = database.collectives.get((name, devices))
    return math.inf if found is None or not math.isfinite(size_mib) else found.us(size_mib)
