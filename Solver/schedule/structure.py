"""What a precedence structure implies on every accelerator: its order, series components,
antichains, interchangeable operators.

Sets of operators are integers used as bitmasks. Everything is computed once per structure and
cached.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from phaze_common.errors import InputError
from Solver.schedule.problem import CoreType, ScheduleStructure

MAX_ANTICHAINS = 2000  # beyond it the lower bound knows areas and paths only

TYPE_BITS = {CoreType.TC: 1, CoreType.VC: 2, CoreType.TC_AND_VC: 3}


@dataclass(frozen=True)
class Order:
    """A strict partial order on operators 0..n-1: ``before[i]`` and ``after[i]`` are bitmasks of
    all that precede, follow i."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    covers: tuple[tuple[int, int], ...]  # (i, j): i before j with nothing between

    def __len__(self) -> int:
        return len(self.before)

    def parallel(self, operator: int) -> int:
        """Bitmask of the operators that may run at the same time as ``operator``."""
        return ((1 << len(self)) - 1) & ~(
            self.before[operator] | self.after[operator] | 1 << operator
        )

    def topological(self) -> list[int]:
        """Operators so that each comes after all that precede it; of two ready together, the one
        with more to follow first."""
        return sorted(
            range(len(self)),
            key=lambda i: (self.before[i].bit_count(), -self.after[i].bit_count(), i),
        )


@dataclass(frozen=True)
class Component:
    """A series component: ``operators`` (indices into the structure) with the order restricted to
    them.

    ``antichains`` are the maximal sets of pairwise parallel operators, empty where there are more
    than ``MAX_ANTICHAINS``. ``earlier[i]`` holds the operators that may be taken to start no later
    than i if they have the same latencies: of the same core type, ready no later and followed by at
    least as much, so that swapping the two never hurts.
    """

    operators: tuple[int, ...]
    type_bits: tuple[int, ...]  # 1: needs a TC, 2: a VC, 3: both
    order: Order
    antichains: tuple[int, ...]
    earlier: tuple[int, ...]


def members(mask: int) -> Iterator[int]:
    """Indices of the bits set in ``mask``, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@lru_cache(maxsize=256)
def closure(structure: ScheduleStructure) -> Order:
    """Transitive closure of the edges. Raises InputError on a cycle or an edge to an operator that
    does not exist."""
    count = len(structure.core_types)
    predecessors: dict[int, set[int]] = {i: set() for i in range(count)}
    for source, target in structure.edges:
        if not (0 <= source < count and 0 <= target < count):
            raise InputError(
                f"edge ({source}, {target}) names an operator that does not exist; operators are "
                f"0 to {count - 1}"
            )
        predecessors[target].add(source)
    before = [0] * count
    try:
        for target in TopologicalSorter(predecessors).static_order():
            for source in predecessors[target]:
                before[target] |= before[source] | 1 << source
    except CycleError as error:
        cyclic = sorted(set(error.args[1]))
        raise InputError(
            f"the precedence edges form a cycle among operators {cyclic}; an operator graph must "
            "be acyclic"
        ) from error
    return order_of(before)


def order_of(before: list[int]) -> Order:
    """The order whose transitive predecessor masks are ``before``."""
    after = [0] * len(before)
    for target, mask in enumerate(before):
        for source in members(mask):
            after[source] |= 1 << target
    covers = tuple(
        (source, target)
        for target, mask in enumerate(before)
        for source in members(mask)
        if not after[source] & before[target]
    )
    return Order(tuple(before), tuple(after), covers)


def restrict(order: Order, operators: list[int]) -> Order:
    """``order`` among ``operators``, renumbered by their position in that list."""
    position = {operator: k for k, operator in enumerate(operators)}
    return order_of(
        [
            sum(1 << position[i] for i in members(order.before[j]) if i in position)
            for j in operators
        ]
    )


@lru_cache(maxsize=256)
def series_components(structure: ScheduleStructure, kept: int) -> tuple[Component, ...]:
    """Series components of the operators in the bitmask ``kept``, in execution order; optimal
    makespans add up over them.

    They are the connected components of the incomparability graph. Take a, a' in one and b in
    another, a before b, a parallel to a': were b before a', then a before a'; so a' precedes b too.
    Walking along parallel pairs, all of one component precede all of the other, and a schedule can
    only be their concatenation.
    """
    whole = closure(structure)
    remaining = kept
    groups: list[int] = []
    while remaining:
        group = frontier = remaining & -remaining
        while frontier:
            reached = 0
            for operator in members(frontier):
                reached |= whole.parallel(operator)
            frontier = reached & kept & ~group
            group |= frontier
        groups.append(group)
        remaining &= ~group
    groups.sort(key=lambda group: min((whole.before[i] & kept).bit_count() for i in members(group)))
    return tuple(_component(structure, whole, list(members(group))) for group in groups)


def _component(structure: ScheduleStructure, whole: Order, operators: list[int]) -> Component:
    order = restrict(whole, operators)
    type_bits = tuple(TYPE_BITS[structure.core_types[i]] for i in operators)
    antichains = maximal_antichains(order, MAX_ANTICHAINS)
    return Component(tuple(operators), type_bits, order, antichains, _earlier(order, type_bits))


def _earlier(order: Order, type_bits: tuple[int, ...]) -> tuple[int, ...]:
    def goes_first(j: int, i: int) -> bool:
        if (
            type_bits[i] != type_bits[j]
            or order.before[j] & ~order.before[i]
            or order.after[i] & ~order.after[j]
        ):
            return False
        return (order.before[i], order.after[i]) != (order.before[j], order.after[j]) or j < i

    return tuple(
        sum(1 << j for j in members(order.parallel(i)) if goes_first(j, i))
        for i in range(len(order))
    )


def maximal_antichains(order: Order, limit: int) -> tuple[int, ...]:
    """All maximal sets of pairwise parallel operators (Bron and Kerbosch 1973, with pivot); () if
    more than ``limit``."""
    parallel = [order.parallel(i) for i in range(len(order))]
    found: list[int] = []
    stack = [(0, (1 << len(order)) - 1, 0)]
    while stack:
        chosen, candidates, excluded = stack.pop()
        if not candidates:
            if not excluded:
                found.append(chosen)
                if len(found) > limit:
                    return ()
            continue
        pivot = max(
            members(candidates | excluded), key=lambda i: (parallel[i] & candidates).bit_count()
        )
        for operator in members(candidates & ~parallel[pivot]):
            stack.append(
                (
                    chosen | 1 << operator,
                    candidates & parallel[operator],
                    excluded & parallel[operator],
                )
            )
            candidates &= ~(1 << operator)
            excluded |= 1 << operator
    return tuple(found)
