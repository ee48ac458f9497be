"""All permutations of batch size and the six degrees, evaluated in one pass of the table over
arrays.

The degrees inside a node multiply to its accelerators, those between nodes to the nodes;
``model.DIVISIBILITY`` and the memory decide which permutations are possible. AMPeD's
``optimization`` asks the same, one permutation at a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_common.array_types import IntArray
from phaze_common.errors import InfeasibleError, InputError

from .catalogue import DEGREE_NAMES, parameters
from .configuration import Configuration
from .corrections import applied
from .rules import DIVISIBILITY, MEMORY, MEMORY_BYTES, Rule, build_table, has_memory
from .times import TOTAL_S, TimeQuantities

MOST_PERMUTATIONS = 1_000_000  # at some 1.5 kB each, of all parameters and times


@dataclass(frozen=True)
class Permutation:
    """One feasible point: batch size (sequences), the six degrees in the order of ``DEGREE_NAMES``,
    seconds and bytes."""

    batch_size: int
    degrees: tuple[int, ...]
    time_s: float
    memory_bytes: float

    @property
    def total(self) -> tuple[int, ...]:
        """Data, tensor and pipeline parallel degree over the whole system."""
        pairs = zip(self.degrees[:3], self.degrees[3:], strict=True)
        return tuple(inside * between for inside, between in pairs)

    def instead(self) -> dict[str, float]:
        """What it sets in a configuration."""
        return {
            "batch_size": float(self.batch_size),
            **dict(zip(DEGREE_NAMES, map(float, self.degrees), strict=True)),
        }


@dataclass(frozen=True)
class Exclusion:
    """How many permutations break a rule and none of those before it."""

    rule: str
    permutations: int


@dataclass(frozen=True)
class Certificate:
    """What was searched: ``permutations`` = those that ``excluded`` counts + ``feasible``, each of
    which was evaluated."""

    accelerators_per_node: int
    nodes: int
    batch_sizes: tuple[int, ...]
    splits_inside: int
    splits_between: int
    permutations: int
    excluded: tuple[Exclusion, ...]
    feasible: int


@dataclass(frozen=True)
class SearchResult:
    """The best permutations, quickest first, and the certificate; of equally quick ones those with
    the smaller batch first."""

    configuration: Configuration
    kept: tuple[str, ...]
    best: tuple[Permutation, ...]
    certificate: Certificate


def splits(number: int) -> IntArray:
    """All ordered triples of factors with this product, shape (triples, 3), in ascending order."""
    divisors = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    divisors = sorted({*divisors, *(number // each for each in divisors)})
    pairs = ((one, two) for one in divisors for two in divisors if number // one % two == 0)
    return np.array([(one, two, number // one // two) for one, two in pairs], dtype=np.int64)


def optimize(
    configuration: Configuration,
    batch_sizes: Sequence[int] = (),
    kept: Collection[str] = (),
    *,
    best: int = 10,
    ignore_memory: bool = False,
) -> SearchResult:
    """The quickest trainings of a configuration's model on its accelerators, whatever its own
    degrees are.

    Without ``batch_sizes`` those of the configuration. The accelerators are
    total_number_of_accelerators, or number_of_nodes nodes, or as many as the configuration's
    degrees need.

    Raises: InputError: the accelerators do not make whole nodes, a batch size cannot be, or they
        are more than ``MOST_PERMUTATIONS``. InfeasibleError: no permutation obeys the rules.
    """
    per_node, nodes = _system(configuration)
    sizes = _batch_sizes(configuration, batch_sizes)
    inside, between = splits(per_node), splits(nodes)
    count = len(sizes) * len(inside) * len(between)
    if count > MOST_PERMUTATIONS:
        raise InputError(
            f"{configuration.source}: {count:,} permutations ({len(sizes)} batch sizes, "
            f"{len(inside)} splits inside a node, {len(between)} between nodes) are more than "
            f"{MOST_PERMUTATIONS:,}; give fewer batch sizes"
        )
    shape = len(sizes), len(inside), len(between)
    batch, first, second = (each.ravel() for each in np.indices(shape))
    degrees = np.concatenate([inside[first], between[second]], axis=1)
    batches = np.array(sizes, dtype=np.int64)[batch]
    columns = dict(zip(DEGREE_NAMES, degrees.T.astype(np.float64), strict=True))
    instead = {"batch_size": batches.astype(np.float64), **columns}
    table = build_table(configuration, applied(kept), instead)
    rules: tuple[Rule, ...] = (*DIVISIBILITY, MEMORY)
    if ignore_memory or not has_memory(configuration):
        rules = DIVISIBILITY
    feasible, excluded = _obeyed(table, rules, count)
    certificate = Certificate(
        per_node, nodes, sizes, len(inside), len(between), count, excluded, int(feasible.sum())
    )
    if not certificate.feasible:
        raise InfeasibleError(
            f"{configuration.source}: none of the {count:,} permutations is possible; "
            f"{_reasons(excluded)}"
        )
    times = np.broadcast_to(table.value(TOTAL_S), (count,))
    memory = np.broadcast_to(table.value(MEMORY_BYTES), (count,))
    places = np.flatnonzero(feasible)
    order = places[np.lexsort((places, batches[places], times[places]))][:best]
    found = zip(batches[order], degrees[order], times[order], memory[order], strict=True)
    best_ones = tuple(
        Permutation(int(size), tuple(map(int, of)), float(time), float(held))
        for size, of, time, held in found
    )
    return SearchResult(configuration, tuple(kept), best_ones, certificate)


def _obeyed(
    table: TimeQuantities, rules: Sequence[Rule], count: int
) -> tuple[NDArray[np.bool_], tuple[Exclusion, ...]]:
    """Which permutations obey all rules, and how many each rule is the first to exclude."""
    possible = np.ones(count, dtype=np.bool_)
    excluded = []
    for rule in rules:
        still = possible & rule.holds(table)
        excluded.append(Exclusion(rule.name, int(possible.sum() - still.sum())))
        possible = still
    return possible, tuple(excluded)


def _reasons(excluded: Sequence[Exclusion]) -> str:
    counted = ", ".join(
        f"{each.permutations:,} break '{each.rule}'" for each in excluded if each.permutations
    )
    return f"{counted}; change the batch sizes, the nodes or the memory"


def _batch_sizes(configuration: Configuration, sizes: Sequence[int]) -> tuple[int, ...]:
    parameter = parameters()["batch_size"]
    given = [parameter.parse(each, "--batch-sizes") for each in sizes] or list(
        configuration.values("batch_size")
    )
    if not given:
        raise InputError(
            f"{configuration.source}: batch_size has no value; give one, a list of them, or "
            "--batch-sizes"
        )
    return tuple(sorted({int(each) for each in given}))


def _system(configuration: Configuration) -> tuple[int, int]:
    source = configuration.source
    per_node = _single(configuration, "number_of_accelerators_per_node")
    if per_node is None:
        raise InputError(
            f"{source}: number_of_accelerators_per_node has no value; add it to the configuration"
        )
    total = _single(configuration, "total_number_of_accelerators")
    nodes = _single(configuration, "number_of_nodes")
    if nodes is None and total is None:
        degrees = [_single(configuration, name) for name in DEGREE_NAMES]
        if None in degrees:
            raise InputError(
                f"{source} says neither number_of_nodes nor total_number_of_accelerators nor all "
                "six degrees; add one of them"
            )
        total = math.prod(each for each in degrees if each is not None)
    if total is None:
        total = per_node * (nodes or 0)
    if total % per_node or (nodes is not None and nodes * per_node != total):
        raise InputError(
            f"{source}: {total} accelerators are not the whole nodes of {per_node} that the "
            "configuration names; make total_number_of_accelerators the product of number_of_nodes "
            "and number_of_accelerators_per_node"
        )
    return per_node, total // per_node


def _single(configuration: Configuration, name: str) -> int | None:
    values = configuration.values(name)
    return int(values[0]) if values else None
