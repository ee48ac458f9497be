"""Kernels of a device that somebody traced, and where its time goes in an iteration by them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from phaze_common.records import read_yaml, to_record

KERNELS = Path(__file__).with_name("kernels.yaml")
COMMUNICATION, MESSAGES = "communication", "messages"
PRODUCTS, ELEMENTWISE, OPTIMIZER = "products", "element-wise", "optimizer"
HOST = "host"  # between iterations, while the device waits
FORWARD, BACKWARD = "forward passes", "backward passes"
MICRO = 1e-6
MOST_LONGEST = 10
Interval = tuple[float, float]


@dataclass(frozen=True)
class KernelRule:
    """Kernels in whose name ``pattern`` is found belong to ``part``."""

    part: str
    pattern: str


@dataclass(frozen=True)
class _File:
    kernels: tuple[KernelRule, ...]


@dataclass(frozen=True, order=True)
class ProductShape:
    """``batch`` products over ``inner`` of two matrices with ``narrow`` and ``wide`` rows or
    columns beside it.

    Kernels of a product and of its transpose are the same, so that the smaller one of both comes
    first.
    """

    batch: int
    narrow: int
    wide: int
    inner: int

    @staticmethod
    def of(batch: int, m: int, n: int, k: int) -> ProductShape:
        """The shape of ``batch`` products of an (m, k) by a (k, n) matrix."""
        return ProductShape(batch, min(m, n), max(m, n), k)


@dataclass(frozen=True)
class TracedKernel:
    """What ran on a device from ``begin_us`` to ``end_us``, microseconds of any clock.

    Its ``part`` is one of ``kernels.yaml``, or messages between two ranks. ``product`` is known
    where the trace has the operands of a matrix product.
    """

    name: str
    part: str
    begin_us: float
    end_us: float
    product: ProductShape | None = None


@dataclass(frozen=True)
class KernelTime:
    """Seconds that kernels of one ``name`` take in an iteration."""

    name: str
    part: str
    seconds: float


@dataclass(frozen=True)
class ProductTime:
    """Seconds that products of one shape take in an iteration, ``count`` kernels."""

    shape: ProductShape
    count: float
    seconds: float


@dataclass(frozen=True)
class TracedIteration:
    """Seconds of a device in one iteration, the mean of ``steps``.

    ``parts_s`` are sums of kernels by part, ``exposed_s`` is collective communication beside which
    nothing else runs, ``messages_s`` what is sent from rank to rank beside which neither does,
    ``idle_s`` what no kernel fills of ``iteration_s``. ``longest`` are the kernels that take most.
    ``rank`` of so many ``ranks`` is told by some traces.
    """

    steps: int
    iteration_s: float
    parts_s: Mapping[str, float]
    exposed_s: float
    messages_s: float
    idle_s: float
    longest: tuple[KernelTime, ...]
    products: tuple[ProductTime, ...] = ()
    rank: int | None = None
    ranks: int | None = None


def iteration_of(
    kernels: Sequence[TracedKernel], steps: int, rank: int | None = None, ranks: int | None = None
) -> TracedIteration:
    """The iteration that ``kernels``, at least one, make up ``steps`` times."""
    parts = defaultdict[str, float](float)
    names = defaultdict[tuple[str, str], float](float)
    shapes = defaultdict[ProductShape, float](float)
    count = defaultdict[ProductShape, float](float)
    spans = defaultdict[str, list[Interval]](list)
    for each in kernels:
        seconds = (each.end_us - each.begin_us) * MICRO / steps
        parts[each.part] += seconds
        names[each.name, each.part] += seconds
        if each.product is not None:
            shapes[each.product] += seconds
            count[each.product] += 1.0 / steps
        kind = each.part if each.part in (COMMUNICATION, MESSAGES) else ""
        spans[kind].append((each.begin_us, each.end_us))
    computing_us, working_us = _length(spans[""]), _length([*spans[""], *spans[COMMUNICATION]])
    busy_us = _length([*spans[""], *spans[COMMUNICATION], *spans[MESSAGES]])
    whole_us = max(each.end_us for each in kernels) - min(each.begin_us for each in kernels)
    return TracedIteration(
        steps,
        whole_us * MICRO / steps,
        dict(parts),
        (working_us - computing_us) * MICRO / steps,
        (busy_us - working_us) * MICRO / steps,
        (whole_us - busy_us) * MICRO / steps,
        longest_of(KernelTime(name, part, seconds) for (name, part), seconds in names.items()),
        tuple(ProductTime(each, count[each], seconds) for each, seconds in sorted(shapes.items())),
        rank,
        ranks,
    )


def longest_of(kernels: Iterable[KernelTime]) -> tuple[KernelTime, ...]:
    """Those that take most, the longest first."""
    return tuple(sorted(kernels, key=lambda each: -each.seconds)[:MOST_LONGEST])


@cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """The rules of ``kernels.yaml``."""
    return to_record(_File, read_yaml(KERNELS), str(KERNELS)).kernels


@cache
def part_of(kernel: str) -> str:
    """The part that a kernel of this name belongs to."""
    for rule in kernel_rules():
        if re.search(rule.pattern, kernel, re.IGNORECASE):
            return rule.part
    return ELEMENTWISE


def product_of(operator: str, shapes: object) -> ProductShape | None:
    """The product that torch's ``operator`` makes of operands of ``shapes``; None where it is none,
    or they are not known."""
    name = operator.removeprefix("aten::")
    operands = _OPERANDS.get(name)
    if operands is None or not isinstance(shapes, list | tuple) or len(shapes) < operands.stop:
        return None
    left, right = shapes[operands]
    if not (_is_shape(left) and _is_shape(right)):
        return None
    if not len(left) == len(right) == _RANK_OF[name] or left[-1] != right[-2]:
        return None
    return ProductShape.of(left[0] if len(left) == 3 else 1, left[-2], right[-1], left[-1])


# of what they are given
_OPERANDS = {"mm": slice(0, 2), "bmm": slice(0, 2), "addmm": slice(1, 3), "baddbmm": slice(1, 3)}
_RANK_OF = {"mm": 2, "addmm": 2, "bmm": 3, "baddbmm": 3}


def _is_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(each, int) and 0 < each < 1 << 40 for each in value
    )


def _length(spans: Iterable[Interval]) -> float:
    """How long at least one of ``spans`` lasts."""
    whole, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            whole += end - max(begin, until)
            until = end
    return whole
