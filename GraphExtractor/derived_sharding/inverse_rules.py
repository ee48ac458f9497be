"""Which parameters must be split for a value to be split: rules are turned round by trying them."""

import operator as python_operator
from collections.abc import Mapping
from itertools import islice, product

from torch.fx import Node

from GraphExtractor.derived_sharding.facts import StepFacts
from GraphExtractor.derived_sharding.layout_rules import piece_sizes, slice_range
from GraphExtractor.derived_sharding.product_rules import Context
from GraphExtractor.derived_sharding.propagation import is_broadcast
from GraphExtractor.derived_sharding.rules import result_of
from GraphExtractor.derived_sharding.specs import (
    REPLICATED,
    Demand,
    Obstacle,
    Shard,
    Spec,
    between,
    cut,
    reshaped,
    shape_of,
)
from GraphExtractor.values import argument, operator_name

_MOST_COMBINATIONS = 2000


class InverseRules:
    """Looks for what must be split; remembers which operands make which result of an operator."""

    def __init__(self, facts: StepFacts) -> None:
        self.facts = facts
        self._known: dict[tuple[Node, int | None, Shard], dict[Node, Shard]] = {}

    def seeds_for(self, value: Node, required: Shard) -> dict[Node, Shard]:
        """Splits of parameters, and of repeated values, that split ``value`` as ``required``.

        Constants are left out: of those an operator takes its own part. That the seeds do what they
        should is for the propagation to prove.

        Raises: Obstacle: an operator on the way cannot have such a result.
        """
        seeds: dict[Node, Shard] = {}
        found: dict[Node, Shard] = {}
        pending: list[tuple[Node, int | None, Shard]] = [(value, None, required)]
        while pending:
            node, item, shard = pending.pop()
            if node not in self.facts.learned:
                continue
            if found.setdefault(node, shard) != shard and item is None:
                raise Obstacle(f"would need {node} to be split in two ways")
            if node in self.facts.step.parameters or (item is None and is_broadcast(node, shard)):
                seeds[node] = shard
            elif node.target is python_operator.getitem:
                pending.append((node.args[0], node.args[1], shard))
            else:
                operands = self._operands_for(node, item, shard).items()
                pending += [(at, None, spec) for at, spec in operands if found.get(at) != spec]
        return seeds

    def _operands_for(self, node: Node, item: int | None, required: Shard) -> dict[Node, Shard]:
        """Operands to split for a result (or an ``item`` of it) to be split as ``required``."""
        key = node, item, required
        if key in self._known:
            return self._known[key]
        operands = [operand for operand in node.all_input_nodes if shape_of(operand)]
        choices = [(REPLICATED, *_candidates(node, item, each, required)) for each in operands]
        for combination in islice(product(*choices), _MOST_COMBINATIONS):
            specs = dict(zip(operands, combination, strict=True))
            if _result_on(self.facts, node, item, specs) == required:
                found = {each: spec for each, spec in specs.items() if isinstance(spec, Shard)}
                self._known[key] = found
                return found
        name = operator_name(node)
        raise Obstacle(f"would need the result of {name} to be split, which it cannot be")


def _result_on(
    facts: StepFacts, node: Node, item: int | None, specs: Mapping[Node, Spec]
) -> Spec | None:
    """Split of a result on operands split as ``specs`` say, None where this cannot be."""
    context = Context(lambda each: specs.get(each, REPLICATED), False, REPLICATED, facts.weights)
    try:
        result = result_of(node, context)
    except (Demand, Obstacle):
        return None
    return result[item or 0] if isinstance(result, tuple) else result


def _candidates(node: Node, item: int | None, operand: Node, required: Shard) -> list[Shard]:
    """Splits that an operand may have where the result has the ``required`` one."""
    shape, name = shape_of(operand), operator_name(node)
    found: list[Shard] = []
    if name in {"view", "_unsafe_view", "reshape", "_reshape_alias"}:
        back = reshaped(required, shape_of(node), shape)
        return [back] if back else []
    if name in {"split", "split_with_sizes"} and argument(node, "dim") % len(shape) == required.dim:
        sizes, place = piece_sizes(node), item or 0
        parts = (*sizes[:place], *required.parts, *sizes[place + 1 :])
        found.append(Shard(required.dim, parts))
    elif name == "slice" and argument(node, "dim") % len(shape) == required.dim:
        start, end = slice_range(node, shape[required.dim])
        parts = (start, *required.parts, shape[required.dim] - end)
        found.append(Shard(required.dim, tuple(part for part in parts if part)))
    elif name == "cat" and (node.args[1] if len(node.args) > 1 else 0) % len(shape) == required.dim:
        position = 0
        for piece in node.args[0]:
            end = position + shape_of(piece)[required.dim]
            if piece is operand:
                parts = between(cut(required.parts, (position, end)), position, end)
                found.append(Shard(required.dim, parts))
            position = end
    total = sum(required.parts)
    for dim, size in enumerate(shape):
        if size == total:
            found.append(Shard(dim, required.parts))
        elif name == "attention" and all(part * size % total == 0 for part in required.parts):
            found.append(Shard(dim, tuple(part * size // total for part in required.parts)))
        elif size > 1:
            found.append(Shard(dim, (size,)))
    return list(dict.fromkeys(found))
