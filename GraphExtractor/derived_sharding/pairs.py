"""The search for linear pairs: a weight split by columns whose result reaches one split by rows."""

import heapq
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch.fx import Node

from GraphExtractor.derived_sharding.facts import Product, StepFacts
from GraphExtractor.derived_sharding.inverse_rules import InverseRules
from GraphExtractor.derived_sharding.propagation import Propagation, splits
from GraphExtractor.derived_sharding.rules import splits_product_from_bias
from GraphExtractor.derived_sharding.specs import PARTIAL, Demand, Obstacle, Result, Shard, shape_of

_LOOKS = 20  # times that a node is looked at on average, before a trial is given up
_RESHAPES = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_MOST_PARTS, _MOST_REPACKED = 8, 24


@dataclass(frozen=True)
class Pair:
    """Weights split together, first that of ``module``; widths divide ``granularity``."""

    module: str
    granularity: int


@dataclass(frozen=True)
class Refusal:
    """A weight that stays whole, and the operator that forbids to split it."""

    weight: str
    elements: int
    node: Node
    reason: str


@dataclass(frozen=True)
class Pairs:
    """All pairs of a step, the splits that follow from them, and the weights that stay whole."""

    propagation: Propagation
    pairs: tuple[Pair, ...]
    refusals: tuple[Refusal, ...]

    @property
    def granularity(self) -> int:
        """Widths that divide all pairs divide this; 1 without pairs."""
        return math.gcd(*(pair.granularity for pair in self.pairs)) or 1


def find_pairs(facts: StepFacts) -> Pairs:
    """Try every weight of a matrix product of the forward pass as the first of a pair.

    Where a weight could be in several, the one wins that sums the fewest elements for what it
    splits of the weights.
    """
    settled, inverse = Propagation(facts), InverseRules(facts)
    pairs: list[Pair] = []
    refusals: dict[Node, Refusal] = {}

    def attempt(first: Product) -> _Trial | None:
        trial = _Trial(inverse, settled)
        try:
            trial.run(first)
        except _Blocked as blocked:
            parameter = first.parameter
            name, elements = facts.step.parameters[parameter], math.prod(shape_of(parameter))
            refusal = Refusal(name, elements, blocked.node, blocked.reason)
            refusals.setdefault(parameter, refusal)
            return None
        return trial

    firsts: dict[Node, Product] = {}
    for product in facts.products.values():
        if product.parameter not in facts.vocabulary:
            firsts.setdefault(product.parameter, product)
    found = [(first, trial) for first in firsts.values() if (trial := attempt(first))]
    for first, early in sorted(found, key=lambda each: each[1].cost):
        if settled.seed(first.parameter):
            continue
        taken = any(settled.seed(seed) for seed in early.propagation.seeds)
        trial = attempt(first) if taken else early
        if trial:
            settled.seeds |= trial.propagation.seeds
            settled.results |= trial.propagation.results
            pairs.append(Pair(first.module, trial.granularity))
    whole = tuple(refusal for parameter, refusal in refusals.items() if not settled.seed(parameter))
    return Pairs(settled, tuple(pairs), whole)


class _Blocked(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, node: Node, reason: str, pieces: int = 1) -> None:
        super().__init__(reason)
        self.node, self.reason, self.pieces = node, reason, pieces


class _Trial:
    """Splits one weight and sees how far that gets, splitting what else must be on the way."""

    def __init__(self, inverse: InverseRules, settled: Propagation) -> None:
        self.facts = inverse.facts
        self.inverse = inverse
        self.settled = settled
        self.propagation = Propagation(self.facts, settled)
        self.granularity = 1
        self.cost = 0.0  # elements summed in the forward pass per element of the parameters split
        self._waiting: list[int] = []  # positions of the nodes to look at (again), as a heap
        self._pushed: set[int] = set()
        self._outer: set[int] = set()  # sizes of outer dimensions that reshapes made of split ones
        self._nodes = list(self.facts.order)

    def run(self, first: Product) -> None:
        """Raises: _Blocked: why the product's weight cannot be the first of a pair."""
        try:
            self._attempt(first.weight, self._columns(first, 1))
        except _Blocked as blocked:
            for seeds in self._repacked(first, blocked.pieces):
                try:
                    self._attempt(first.weight, seeds)
                except _Blocked:
                    continue
                return
            raise

    def _columns(self, first: Product, pieces: int) -> dict[Node, Shard]:
        """Splits of the columns of a weight, taken as ``pieces`` packed behind each other."""
        size = shape_of(first.weight)[first.columns] // pieces
        return self._seeds_for(first.weight, first.weight, Shard(first.columns, (size,) * pieces))

    def _repacked(self, first: Product, pieces: int) -> list[dict[Node, Shard]]:
        """The columns, or a part of what the trial came to split, as several packed ones.

        As many as the obstacle says, or as a reshape made of a split dimension.
        """
        columns = shape_of(first.weight)[first.columns]
        found: list[dict[Node, Shard]] = []
        for count in dict.fromkeys((pieces, *sorted(self._outer))):
            if count == 1:
                continue
            if columns % count == 0:
                with suppress(_Blocked):
                    found.append(self._columns(first, count))
            for seed, shard in self.propagation.seeds.items():
                for index, part in enumerate(shard.parts[:_MOST_PARTS]):
                    if part % count == 0:
                        behind = shard.parts[index + 1 :]
                        packed = (*shard.parts[:index], *(part // count,) * count, *behind)
                        found.append({seed: Shard(shard.dim, packed)})
        return found[:_MOST_REPACKED]

    def _seeds_for(self, reader: Node, value: Node, required: Shard) -> dict[Node, Shard]:
        try:
            return self.inverse.seeds_for(value, required)
        except Obstacle as obstacle:
            raise _Blocked(reader, obstacle.reason, obstacle.pieces) from obstacle

    def _attempt(self, weight: Node, seeds: dict[Node, Shard]) -> None:
        """Propagate from ``seeds``, adding to them on demand, and see whether that makes a pair."""
        state = self.propagation = Propagation(self.facts, self.settled)
        self._waiting, self._pushed, self._outer = [], set(), set()
        self._add(seeds)
        for _ in range(_LOOKS * len(self._nodes)):
            if not self._waiting:
                self._check(weight)
                return
            position = heapq.heappop(self._waiting)
            self._pushed.remove(position)
            node = self._nodes[position]
            try:
                result = state.evaluate(node)
            except Obstacle as obstacle:
                raise _Blocked(node, obstacle.reason, obstacle.pieces) from obstacle
            except Demand as demand:
                self._follow(node, demand)
                continue
            if isinstance(result, Shard) and node.target in _RESHAPES:
                before, outer = state.seen(node, node.args[0]), sum(result.parts)
                if isinstance(before, Shard) and len(before.parts) == 1 and outer < before.parts[0]:
                    self._outer.add(outer)
            self._set(node, result)
        raise _Blocked(self._nodes[0], "the splits of its operands do not settle")

    def _follow(self, node: Node, demand: Demand) -> None:
        """Split what must be split (more finely) for ``node`` to run on parts; look at it again."""
        state, names = self.propagation, self.facts.step.parameters
        required = self._seeds_for(node, demand.operand, demand.shard)
        changed = {seed: shard for seed, shard in required.items() if state.seed(seed) != shard}
        if not changed:
            raise _Blocked(node, "needs operands split alike, which they are not") from demand
        for seed, shard in changed.items():
            name = names.get(seed, str(seed))
            coarser = seed in state.seeds and len(shard.parts) <= len(state.seeds[seed].parts)
            if seed in self.facts.vocabulary:
                reason = f"would split {name}; embedding and head stay whole"
                raise _Blocked(node, reason) from demand
            if self.settled.seed(seed) or coarser:
                reason = f"would split {name} in another way than its other uses"
                raise _Blocked(node, reason) from demand
        self._add(changed)
        self._push(node)

    def _add(self, seeds: dict[Node, Shard]) -> None:
        self.propagation.seeds |= seeds
        for node, shard in seeds.items():
            self._set(node, shard)

    def _set(self, node: Node, result: Result) -> None:
        if self.propagation.result(node) != result:
            self.propagation.results[node] = result
            for user in node.users:
                if user.op == "call_function":
                    self._push(user)

    def _push(self, node: Node) -> None:
        position = self.facts.order[node]
        if position not in self._pushed:
            self._pushed.add(position)
            heapq.heappush(self._waiting, position)

    def _check(self, weight: Node) -> None:
        """A pair has a product summed in the forward pass, gradients like parameters, and parts."""
        state, known = self.propagation, self.facts.products
        products = [
            node for node, each in state.results.items() if node in known and each is PARTIAL
        ]
        products += [
            node
            for node in {user for made in state.results for user in made.users}
            if splits_product_from_bias(node, partial(state.seen, node))
        ]
        if not products:
            raise _Blocked(weight, "no later product with a weight takes in its columns")
        named = self.facts.step.parameters
        split = sum(math.prod(shape_of(seed)) for seed in state.seeds if seed in named)
        self.cost = sum(math.prod(shape_of(node)) for node in products) / split
        for result, parameters in self.facts.gradients.items():
            for parameter in parameters:
                gradient, seed = state.result(result), state.seed(parameter)
                if gradient != seed and (seed or isinstance(gradient, Shard)):
                    reason = f"gives {named[parameter]} a gradient that is split otherwise"
                    raise _Blocked(result, reason)
        found = dict(splits(state))
        self.granularity = math.gcd(*(shard.granularity for shard in found.values()))
        if self.granularity == 1:
            node, shard = min(found.items(), key=lambda each: each[1].granularity)
            sizes = ", ".join(map(str, shard.parts[:4]))
            raise _Blocked(node, f"has parts of sizes {sizes} that cannot be split alike")
